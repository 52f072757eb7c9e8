"""The sketchbook pack: enough requests, all of which the sketch planner can plan."""

import itertools
from collections import Counter
from functools import cache
from random import Random

import numpy as np
import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from assets.prompts.template_fills import choices, fill_sequence
from inference.backends.sketch.backend import SketchPlanner
from inference.roles import PlanRequest
from inference.sketch_world.generator import draw
from inference.sketch_world.grader import plan_faults, plan_is_correct
from inference.sketch_world.object_catalog import COLOURS
from inference.sketch_world.planner import write_plan
from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.request_parser import RequestText
from inference.sketch_world.scene import Scene, at_random, carry_out
from inference.sketch_world.story_catalog import choose_story, load_stories
from inference.sketch_world.understanding import scope
from schemas.prompts import PromptRow


@cache
def bank() -> tuple[PromptRow, ...]:
    return tuple(generate_bank(load_pack("sketchbook"), BankSettings(), 3000))


def without_images() -> list[PromptRow]:
    return [row for row in bank() if not row.input_image_texts]


def test_every_subcategory_of_the_eight_categories_is_a_story():
    theirs, ours = load_pack("interleave"), load_pack("sketchbook")
    assert set(ours.taxonomy.categories) == set(theirs.taxonomy.categories)
    assert set(ours.subcategories) == set(load_stories()) and len(ours.subcategories) >= 24


@pytest.mark.slow
def test_three_thousand_distinct_requests_with_held_out_ones():
    assert len({row.text for row in without_images()}) == len(without_images()) > 2950
    by_subcategory = Counter(row.subcategory for row in bank())
    assert max(by_subcategory.values()) <= 2 * min(by_subcategory.values())
    assert set(Counter(row.split for row in bank())) == {"train", "heldout", "heldout_category"}


@pytest.mark.slow
def test_every_request_finds_the_story_of_its_subcategory():
    for row in without_images():
        assert choose_story(RequestText(row.text)) is load_stories()[row.subcategory], row.text


@pytest.mark.slow
async def test_plans_of_every_template_and_story_match_the_request():
    planner = SketchPlanner()
    rows = [*{row.template_id: row for row in without_images()}.values()]
    rows += {row.subcategory: row for row in without_images()}.values()
    for row in rows:
        text = RequestText(row.text)
        plan = await planner.plan(PlanRequest(row.text))
        prompts = [step.prompt for step in plan.steps if step.prompt is not None]
        assert 3 <= len(prompts) <= 7, row.text
        assert len(prompts) == (text.step_count or len(prompts)), row.text
        shown = _colours_shown(prompts)
        if not text.step_count:
            assert set(text.names_of("colour")) & set(COLOURS) <= shown, row.text


@pytest.mark.slow
def test_what_is_asked_of_every_given_picture_can_be_drawn():
    pack = load_pack("sketchbook")
    templates = [template for template in pack.templates.values() if template.input_images]
    assert len(templates) == 3
    for sub, template in itertools.product(("summer-garden", "busy-street"), templates):
        options = {
            slot.key: choices(pack, slot, pack.subcategories[sub].banks) for slot in template.slots
        }
        for fill in itertools.islice(fill_sequence("t", template, options, Random(sub)), 12):
            (shown,) = fill.input_image_texts()
            assert parse(shown).edits
            request = PlanRequest(fill.text(), (draw(shown, (), 7),))
            plan = write_plan(request)
            assert plan_is_correct(request, plan) and not plan_faults(request, plan), request.text
            assert not scope(request).not_drawn, request.text


def _colours_shown(prompts: list[str]) -> set[str]:
    scene: Scene | None = None
    colours: set[str] = set()
    for prompt in prompts:
        outcome = carry_out(parse(prompt), scene, at_random(np.random.default_rng(0)))
        assert not outcome.impossible, prompt
        scene = outcome.scene
        colours |= {thing.colour for thing in scene.cells.values()}
    return colours
