"""Interleaved sequences: forms, tags, which stories are told."""

import re

from assets.curation.sequences import build_sequences
from assets.curation.settings import CurationSettings
from tests.assets.curation.curated_world import TEXT_ONLY, World, records

GOOD = [(9.0, True)]
RETRIED = [(3.0, False), (9.0, True)]


def told(world: World, form: str, **sequences) -> tuple[list[dict], object]:
    options = CurationSettings(sequences={"forms": (form,), **sequences})
    rows, report = build_sequences(world.write(), options)
    return records(rows), report


def test_the_easy_form_has_the_accepted_pictures(world):
    world.story("s", RETRIED, GOOD, caption="look")
    (row,), _ = told(world, "easy")
    picture = "<image><img_token></image>"
    assert row["messages"] == [
        {"role": "user", "content": "Tell s"},
        {
            "role": "assistant",
            "content": "<gthink>why s</gthink>"
            f"<plan>draw s 1</plan>{picture}<info>look</info>"
            f"<plan>draw s 2</plan>{picture}<info>look</info>",
        },
    ]
    assert row["images"] == [a.image for a in world.rows["attempts"] if a.accepted]


def test_the_reflection_form_has_every_attempt_with_its_verdict(world):
    world.story("s", RETRIED)
    (row,), _ = told(world, "reflection")
    picture = "<image><img_token></image>"
    assert row["messages"][1]["content"] == (
        f"<gthink>why s</gthink><plan>draw s 1</plan>{picture}"
        '<critic><think>looks wrong</think>{"success": false, "refine_prompt": "try 1.1"}</critic>'
        f'{picture}<critic><think>looks right</think>{{"success": true, "refine_prompt": ""}}'
        "</critic>"
    )
    assert row["images"] == [a.image for a in world.rows["attempts"]]


def test_every_tag_is_closed_and_every_image_has_its_place(world):
    world.story("s", RETRIED, TEXT_ONLY, GOOD, input_images=2, text="From <image> on")
    world.story("hostile", GOOD, caption="</info><plan><image>")
    for form in ("easy", "reflection"):
        rows, _ = told(world, form)
        for row in rows:
            text = "".join(message["content"] for message in row["messages"])
            assert text.count("<image>") == len(row["images"])
            for tag in ("gthink", "plan", "critic", "info", "think"):
                assert len(re.findall(f"<{tag}>", text)) == len(re.findall(f"</{tag}>", text))


def test_text_only_steps_and_plans_without_captions_are_kept(world):
    world.story("s", GOOD, TEXT_ONLY)
    (row,), _ = told(world, "easy")
    story = row["messages"][1]["content"]
    assert story.endswith("<plan>draw s 1</plan><image><img_token></image><info>words 2</info>")


def test_only_whole_stories_of_train_prompts_are_told(world):
    world.story("good", GOOD)
    world.story("heldout", GOOD, split="heldout")
    world.story("stopped", GOOD, status="stopped")
    world.story("hole", GOOD, GOOD, chosen="none")
    world.story("words", TEXT_ONLY)
    world.story("worn", [(4, False)], status="exhausted")
    rows, report = told(world, "easy")
    assert [row["prompt_id"] for row in rows] == ["good"]
    assert report.rows == {"easy": 1}
    assert report.left_out == {
        "exhausted": 1,
        "heldout": 1,
        "missing_picture": 1,
        "stopped": 1,
        "text_only": 1,
    }
    rows, _ = told(world, "easy", exhausted=True)
    assert [row["prompt_id"] for row in rows] == ["good", "worn"]


def test_nothing_is_shown_after_the_chosen_picture(world):
    world.story("s", [(8, False), (4, False)], status="exhausted")
    first, last = world.rows["attempts"]
    world.rows["attempts"] = [
        first.model_copy(update={"chosen": True}),
        last.model_copy(update={"chosen": False}),
    ]
    (row,), _ = told(world, "reflection", exhausted=True)
    assert row["images"] == [first.image]
