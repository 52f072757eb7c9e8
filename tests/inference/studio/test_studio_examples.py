"""The page's examples: one for each category of the sketchbook, and a story each."""

import json

import pytest

from interleave_foundry.assets.prompts.pack import load_pack
from interleave_foundry.inference.roles import PlanRequest
from interleave_foundry.inference.sketch.planner import SketchPlanner
from interleave_foundry.inference.sketch.reading import Reading
from interleave_foundry.inference.sketch.storybook import load_storybook
from interleave_foundry.inference.studio.files import FOLDER

EXAMPLES = json.loads((FOLDER / "examples.json").read_text())


def test_every_category_has_an_example():
    categories = load_pack("sketchbook").taxonomy.categories
    assert {each["category"]: each["title"] for each in EXAMPLES} == {
        name: category.title for name, category in categories.items()
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["category"])
async def test_an_example_can_be_told(example):
    plan = await SketchPlanner().plan(PlanRequest(example["text"]))
    assert len([step for step in plan.steps if step.prompt]) >= 4
    assert load_storybook().choose(Reading(example["text"])), "things to draw, but no story"
    assert (FOLDER / "examples" / f"{example['category']}.png").is_file()
