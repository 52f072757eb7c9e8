"""Rows of planner_sft: complete plans and plans to be continued."""

import json

from assets.curation.planner_sets import build_planner_rl, build_planner_sft
from assets.curation.settings import CurationSettings, PlannerSettings
from schemas.prompts import PROMPTS
from tests.assets.curation.curated_world import TEXT_ONLY, World, records

GOOD = [(9.0, True)]


def planner(world: World, **planner) -> list[dict]:
    return records(build_planner_sft(world.write(), CurationSettings(planner=planner))[0])


def by_source(rows: list[dict], source: str) -> list[dict]:
    return [row for row in rows if row["source"] == source]


def plan_of(row: dict) -> list[dict]:
    text = row["messages"][1]["content"].split("<answer>")[1].removesuffix("</answer>")
    return json.loads(text)["execution_plan"]


def test_request_becomes_its_complete_plan(world):
    world.add("s", GOOD, GOOD)
    (row,) = by_source(planner(world), "plan")
    assert "Tell s" in row["messages"][0]["content"]
    assert row["messages"][1]["content"].startswith("<think>why s</think>\n")
    steps = [(s["step_number"], s["prompt"], s["auxiliary_text"]) for s in plan_of(row)]
    assert steps == [(1, "draw s 1", None), (2, "draw s 2", None)]
    assert (row["images"], row["cut"], row["agent_prompt_version"]) == ([], 0, "planner-text@1")


def test_request_with_images_is_interleaved_and_has_no_reasoning(world):
    world.add("s", GOOD, input_images=2, text="Turn <image> into night")
    (row,) = by_source(planner(world), "plan")
    assert row["agent_prompt_version"] == "planner-interleaved@2"
    assert row["messages"][0]["content"].count("<image>") == 2
    assert row["images"] == world.rows["prompts"][0].input_images
    assert row["messages"][1]["content"].startswith("<think></think>")


def test_text_only_steps_are_planned_as_text(world):
    world.add("s", GOOD, TEXT_ONLY)
    (row,) = by_source(planner(world), "plan")
    # as in inference, where the planner gets a text request whatever its steps will be
    assert row["agent_prompt_version"] == "planner-text@1"
    step = plan_of(row)[1]
    assert (step["prompt"], step["instruction"], step["auxiliary_text"]) == (None, None, "words 2")


def test_continuation_starts_after_the_last_image(world):
    world.add("s", GOOD, [(3, False), (9, True)], TEXT_ONLY, GOOD, GOOD, input_images=1)
    (row,) = by_source(planner(world), "continuation")
    cut = row["cut"]
    assert 1 <= cut <= 4
    assert [step["step_number"] for step in plan_of(row)] == list(range(cut + 1, 6))
    chosen = {a.step_number: a.image for a in world.rows["attempts"] if a.chosen}
    images = [chosen[n] for n in range(1, cut + 1) if n in chosen]
    assert row["images"] == [*world.rows["prompts"][0].input_images, *images]
    user = row["messages"][0]["content"]
    assert user.count("<image>") == len(row["images"])
    assert f"step_number begins at {cut + 1}" in user
    assert "1. Part 1. do 1 <image>" in user


def test_cuts_differ_and_follow_from_the_seed(world):
    for number in range(12):
        world.add(f"s{number}", *[GOOD] * 6)
    world.write()
    cuts = [
        [row["cut"] for row in by_source(planner(world, seed=seed), "continuation")]
        for seed in (0, 0, 1)
    ]
    assert cuts[0] == cuts[1] != cuts[2]
    assert len(set(cuts[0])) > 2


def test_steps_that_were_not_carried_out_are_not_given(world):
    world.add("s", GOOD, GOOD, GOOD, GOOD, status="stopped", completed_steps=2)
    (row,) = by_source(planner(world), "continuation")
    assert row["cut"] <= 2


def test_plan_without_an_image_for_its_first_step_is_not_continued(world):
    world.add("s", GOOD, GOOD, chosen="none")
    world.add("one", GOOD)
    assert not by_source(planner(world), "continuation")


def test_only_train_prompts_are_used(world):
    world.add("s", GOOD, GOOD, split="heldout")
    world.add("t", GOOD, GOOD, split="heldout_category")
    assert planner(world) == []


def test_plans_are_sampled_for_requests_that_no_teacher_has_planned(world):
    """Nor for those of another pack, nor for held-out ones; the number is limited."""
    world.add("planned", GOOD, shard="toy-0001")
    home = world.write()
    for number in range(6):
        world.add(f"new{number}", GOOD, shard="toy-0002", input_images=number % 2)
    world.add("unseen", GOOD, shard="toy-0002", split="heldout")
    new = [row for row in world.rows["prompts"] if row.shard == "toy-0002"]
    new[0] = new[0].model_copy(update={"pack": "other"})
    home.lake.write(PROMPTS, new, "toy-0002")
    rows = build_planner_rl(home, PlannerSettings(), "toy").to_pylist()
    assert {row["prompt_id"] for row in rows} == {f"new{number}" for number in range(1, 6)}
    by_id = {row["row_id"]: row for row in rows}
    assert by_id["new2"]["request"] == "Tell new2" and not by_id["new2"]["images"]
    assert by_id["new2"]["agent_prompt_version"] == "planner-text@1"
    assert by_id["new3"]["agent_prompt_version"] == "planner-interleaved@2"
    (turn,) = by_id["new3"]["messages"]
    assert turn["role"] == "user" and turn["content"].count("<image>") == 1
    assert by_id["new3"]["images"] == new[3].input_images
    assert build_planner_rl(home, PlannerSettings(rl_prompts=2), "toy").to_pylist() == rows[:2]
