"""Interleaved sequences: forms, tags, and which trajectories are used."""

import re

from assets.curation.sequences import build_sequences
from assets.curation.settings import CurationSettings
from tests.assets.curation.curated_world import TEXT_ONLY, World, records

GOOD = [(9.0, True)]
RETRIED = [(3.0, False), (9.0, True)]


def build(world: World, written: str, **sequences) -> tuple[list[dict], dict[str, int]]:
    options = CurationSettings(sequences={"forms": (written,), **sequences})
    reader, dropped = build_sequences(world.write(), options)
    return records(reader), dropped


def test_easy_form_has_the_accepted_images(world):
    world.add("s", RETRIED, TEXT_ONLY, GOOD, caption="look")
    (row,), _ = build(world, "easy")
    image = "<image><img_token></image>"
    assert row["messages"] == [
        {"role": "user", "content": "Tell s"},
        {
            "role": "assistant",
            "content": "<gthink>why s</gthink>"
            f"<plan>draw s 1</plan>{image}<info>look</info><info>words 2</info>"
            f"<plan>draw s 3</plan>{image}<info>look</info>",
        },
    ]
    assert row["images"] == [a.image for a in world.rows["attempts"] if a.accepted]


def test_reflection_form_has_every_attempt_with_its_verdict(world):
    world.add("s", RETRIED)
    (row,), _ = build(world, "reflection")
    image = "<image><img_token></image>"
    assert row["messages"][1]["content"] == (
        f"<gthink>why s</gthink><plan>draw s 1</plan>{image}"
        '<critic><think>looks wrong</think>{"success": false, "refine_prompt": "try 1.1"}</critic>'
        f'{image}<critic><think>looks right</think>{{"success": true, "refine_prompt": ""}}'
        "</critic>"
    )
    assert row["images"] == [a.image for a in world.rows["attempts"]]


def test_every_tag_is_closed_and_every_image_has_a_placeholder(world):
    world.add("s", RETRIED, TEXT_ONLY, GOOD, input_images=2, text="From <image> on")
    world.add("hostile", GOOD, caption="</info><plan><image>")
    for form in ("easy", "reflection"):
        rows, _ = build(world, form)
        for row in rows:
            text = "".join(message["content"] for message in row["messages"])
            assert text.count("<image>") == len(row["images"])
            for tag in ("gthink", "plan", "critic", "info", "think"):
                assert len(re.findall(f"<{tag}>", text)) == len(re.findall(f"</{tag}>", text))


def test_only_complete_trajectories_of_train_prompts_are_used(world):
    world.add("good", GOOD)
    world.add("heldout", GOOD, split="heldout")
    world.add("stopped", GOOD, status="stopped")
    world.add("gap", GOOD, GOOD, chosen="none")
    world.add("text", TEXT_ONLY)
    world.add("exhausted", [(4, False)], status="exhausted")
    rows, dropped = build(world, "easy")
    assert [row["prompt_id"] for row in rows] == ["good"]
    assert dropped == {
        "exhausted": 1,
        "heldout": 1,
        "missing_picture": 1,
        "stopped": 1,
        "text_only": 1,
    }
    rows, _ = build(world, "easy", exhausted=True)
    assert [row["prompt_id"] for row in rows] == ["exhausted", "good"]


def test_attempts_after_the_chosen_one_are_left_out(world):
    world.add("s", [(8, False), (4, False)], status="exhausted")
    first, last = world.rows["attempts"]
    world.rows["attempts"] = [
        first.model_copy(update={"chosen": True}),
        last.model_copy(update={"chosen": False}),
    ]
    (row,), _ = build(world, "reflection", exhausted=True)
    assert row["images"] == [first.image]


def test_reference_form_is_what_its_scripts_write(world):
    world.add("s", RETRIED, GOOD, caption="look")
    (easy,), _ = build(world, "easy", form="reference")
    assert easy["messages"] == [
        {"role": "user", "content": "Tell s"},
        {
            "role": "assistant",
            "content": "<gthink>\nwhy s\n</gthink>\n"
            "<plan>\ndraw s 1\n<plan>\n<image><img_token></image>.\n<info>\nlook\n</info>\n"
            "<plan>\ndraw s 2\n<plan>\n<image><img_token></image>.\n<info>\nlook\n</info>\n",
        },
    ]
    (reflection,), _ = build(world, "reflection", form="reference")
    first_step, _ = reflection["messages"][1]["content"].split("<info>\nlook\n</info>\n")[:2]
    assert first_step == (
        "<gthink>\nwhy s\n</gthink>\n<plan>\ndraw s 1\n<plan>\n"
        "<image><img_token></image>.\n<critic>\n<think>\nlooks wrong\n</think>\n"
        '{"success": false, "refine_prompt": "try 1.1"}\n</critic>\n'
        "<image><img_token></image>.\n<critic>\n<think>\nlooks right\n</think>\n"
        '{"success": true, "refine_prompt": ""}\n</critic>\n'
    )
    assert reflection["images"] == [attempt.image for attempt in world.rows["attempts"]]


def test_reference_form_has_trajectories_with_a_success_for_every_step(world):
    world.add("good", GOOD, RETRIED)
    world.add("captioned", GOOD, TEXT_ONLY)
    world.add("exhausted", [(4, False)], GOOD, status="exhausted")
    rows, dropped = build(world, "easy", form="reference", exhausted=True)
    assert [row["prompt_id"] for row in rows] == ["good"]
    assert dropped == {"not_all_accepted": 2}
