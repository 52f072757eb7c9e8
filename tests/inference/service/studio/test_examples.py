"""The page's examples: one for each category of the sketchbook, which the sketch world can draw."""

import json

import pytest

from assets.prompts.pack_loader import load_pack
from inference.backends.sketch.backend import SketchPlanner
from inference.roles import PlanRequest
from inference.service.studio.router import STATIC_FOLDER
from inference.sketch_world.request_parser import RequestText
from inference.sketch_world.story_catalog import choose_story

EXAMPLES = json.loads((STATIC_FOLDER / "examples.json").read_text())


def test_every_category_has_an_example():
    categories = load_pack("sketchbook").taxonomy.categories
    assert {each["category"]: each["title"] for each in EXAMPLES} == {
        name: category.title for name, category in categories.items()
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["category"])
async def test_example_has_a_plan_a_story_and_an_image(example):
    plan = await SketchPlanner().plan(PlanRequest(example["text"]))
    assert len([step for step in plan.steps if step.prompt]) >= 4
    assert choose_story(RequestText(example["text"])), "things to draw, but no story"
    assert (STATIC_FOLDER / "examples" / f"{example['category']}.png").is_file()
