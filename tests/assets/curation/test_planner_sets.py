"""Rows of planner_sft: whole plans and plans to be continued."""

import json

import pytest

from assets.curation.planner_sets import build_planner_sft
from assets.curation.settings import CurationSettings
from tests.assets.curation.curated_world import TEXT_ONLY, World, records

GOOD = [(9.0, True)]


def planner(world: World, **planner) -> list[dict]:
    return records(build_planner_sft(world.write(), CurationSettings(planner=planner))[0])


def by_source(rows: list[dict], source: str) -> list[dict]:
    return [row for row in rows if row["source"] == source]


def plan_of(row: dict) -> list[dict]:
    text = row["messages"][1]["content"].split("<answer>")[1].removesuffix("</answer>")
    return json.loads(text)["execution_plan"]


def test_a_request_becomes_its_whole_plan(world):
    world.story("s", GOOD, GOOD)
    (row,) = by_source(planner(world), "plan")
    assert "Tell s" in row["messages"][0]["content"]
    assert row["messages"][1]["content"].startswith("<think>why s</think>\n")
    assert [(s["step_number"], s["prompt"]) for s in plan_of(row)] == [
        (1, "draw s 1"),
        (2, "draw s 2"),
    ]
    assert (row["images"], row["cut"], row["agent_prompt_version"]) == ([], 0, "planner-text@1")


def test_absent_captions_stay_null_and_plans_without_any_are_kept(world):
    world.story("s", GOOD, GOOD)
    (row,) = by_source(planner(world), "plan")
    assert [step["auxiliary_text"] for step in plan_of(row)] == [None, None]


def test_a_request_with_pictures_is_interleaved_and_does_not_think(world):
    world.story("s", GOOD, input_images=2, text="Turn <image> into night")
    (row,) = by_source(planner(world), "plan")
    assert row["agent_prompt_version"] == "planner-interleaved@1"
    assert row["messages"][0]["content"].count("<image>") == 2
    assert row["images"] == world.rows["prompts"][0].input_images
    assert row["messages"][1]["content"].startswith("<think></think>")


def test_text_only_steps_are_planned_as_text(world):
    world.story("s", GOOD, TEXT_ONLY)
    (row,) = by_source(planner(world), "plan")
    # as inference asks: it cannot know that a request in text will get steps of text
    assert row["agent_prompt_version"] == "planner-text@1"
    words = plan_of(row)[1]
    assert (words["prompt"], words["instruction"], words["auxiliary_text"]) == (
        None,
        None,
        "words 2",
    )


def test_a_continuation_goes_on_where_the_pictures_end(world):
    world.story("s", GOOD, [(3, False), (9, True)], TEXT_ONLY, GOOD, GOOD, input_images=1)
    (row,) = by_source(planner(world), "continuation")
    cut = row["cut"]
    assert 1 <= cut <= 4
    assert [step["step_number"] for step in plan_of(row)] == list(range(cut + 1, 6))
    chosen = {a.step_number: a.image for a in world.rows["attempts"] if a.chosen}
    shown = [chosen[n] for n in range(1, cut + 1) if n in chosen]
    assert row["images"] == [*world.rows["prompts"][0].input_images, *shown]
    user = row["messages"][0]["content"]
    assert user.count("<image>") == len(row["images"])
    assert f"step_number begins at {cut + 1}" in user
    assert "1. Part 1. do 1 <image>" in user


def test_cuts_differ_and_follow_from_the_seed(world):
    for number in range(12):
        world.story(f"s{number}", *[GOOD] * 6)
    world.write()
    cuts = [
        [row["cut"] for row in by_source(planner(world, seed=seed), "continuation")]
        for seed in (0, 0, 1)
    ]
    assert cuts[0] == cuts[1] != cuts[2]
    assert len(set(cuts[0])) > 2


def test_what_was_not_drawn_is_not_shown(world):
    world.story("s", GOOD, GOOD, GOOD, GOOD, status="stopped", done=2)
    (row,) = by_source(planner(world), "continuation")
    assert row["cut"] <= 2


def test_a_plan_without_a_picture_to_begin_with_is_not_continued(world):
    world.story("s", GOOD, GOOD, chosen="none")
    world.story("one", GOOD)
    assert not by_source(planner(world), "continuation")


@pytest.mark.parametrize("split", ["heldout", "heldout_category"])
def test_only_train_prompts_are_used(world, split):
    world.story("s", GOOD, GOOD, split=split)
    assert planner(world) == []


def test_continuations_can_be_left_out(world):
    world.story("s", GOOD, GOOD)
    assert [row["source"] for row in planner(world, continuations=False)] == ["plan"]
