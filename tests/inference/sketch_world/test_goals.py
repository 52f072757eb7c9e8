"""Goals accept exactly what a request allows; the teacher's plans always meet them."""

import asyncio
from dataclasses import replace

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from inference.backends.sketch.backend import SketchPlanner
from inference.roles import Plan, PlanRequest
from inference.sketch_world.grader import goals_of, plan_faults, plan_is_correct
from inference.sketch_world.prompt_parser import parse
from inference.sketch_world.renderer import render
from inference.sketch_world.scene import Scene, Thing, carry_out, make_cells
from warehouse import EncodedImage

PINK_FLOWER = PlanRequest("Show in five pictures how to grow a pink flower")
LANDSCAPE = PlanRequest("Paint a winter landscape with a green house")  # cells do not matter


def plan_for(request: PlanRequest) -> Plan:
    return asyncio.run(SketchPlanner().plan(request))


def final_scene(plan: Plan, before: Scene | None = None) -> Scene:
    scene = before
    for step in plan.steps:
        scene = carry_out(parse(step.prompt or ""), scene, lambda _, options: options[0]).scene
    return scene or Scene()


def repaint(scene: Scene, colour: str) -> Scene:
    """The scene with one of its flowers, or else a house, in another colour."""
    cell = next(c for c, t in scene.cells.items() if t.kind in ("flower", "house"))
    return scene.with_cell(cell, Thing(scene.cells[cell].kind, colour))


def plans_meet_goals(count: int) -> None:
    for row in generate_bank(load_pack("sketchbook"), BankSettings(), count):
        request = PlanRequest(row.text)
        plan = plan_for(request)
        assert not plan_faults(request, plan), row.text
        assert plan_is_correct(request, plan), row.text


def test_the_teachers_plans_meet_their_goals():
    plans_meet_goals(40)


@pytest.mark.long
def test_the_plans_of_a_thousand_requests_meet_their_goals():
    plans_meet_goals(1000)


def test_a_named_colour_is_the_only_accepted_one():
    scene = final_scene(plan_for(PINK_FLOWER))
    assert goals_of(PINK_FLOWER).accept(scene)
    assert not goals_of(PINK_FLOWER).accept(repaint(scene, "blue"))


def test_a_colour_that_is_not_named_is_free():
    request = PlanRequest("Show how to grow a flower")
    scene = final_scene(plan_for(request))
    assert all(goals_of(request).accept(repaint(scene, c)) for c in ("red", "yellow"))


def test_a_colour_named_for_another_thing_is_free_too():
    request = PlanRequest("Show how to draw a summer garden with a pink flower")
    scene, goals = final_scene(plan_for(request)), goals_of(request)
    cell = next(c for c, t in scene.cells.items() if t.kind == "butterfly")
    assert goals.accept(scene.with_cell(cell, Thing("butterfly", "pink")))
    assert goals.accept(scene.with_cell(cell, Thing("butterfly", "orange")))
    assert not goals.accept(scene.with_cell(cell, Thing("bird", "pink")))


def test_cells_matter_unless_the_story_leaves_them_open():
    for request, free in ((PINK_FLOWER, False), (LANDSCAPE, True)):
        scene = final_scene(plan_for(request))
        cell, target = next(iter(scene.cells)), scene.free_cells()[0]
        moved = scene.with_cell(cell, None).with_cell(target, scene.cells[cell])
        assert goals_of(request).accept(moved) is free


def test_a_missing_or_surplus_thing_and_no_scene_are_rejected():
    for request in (PINK_FLOWER, LANDSCAPE):
        scene, goals = final_scene(plan_for(request)), goals_of(request)
        cell, free = next(iter(scene.cells)), scene.free_cells()[0]
        assert not goals.accept(scene.with_cell(cell, None))
        assert not goals.accept(scene.with_cell(free, Thing("star", "yellow")))
        assert not goals.accept(replace(scene, background="sea"))
        assert not goals.accept(None)


def test_without_a_story_the_named_things_are_required_and_others_allowed():
    goals = goals_of(PlanRequest("a purple boat and two cups on the beach"))
    cells = [(0, "boat", "purple"), (4, "cup", "blue"), (5, "cup", "red"), (8, "sun", "yellow")]
    assert goals.accept(Scene("beach", make_cells(cells)))
    assert not goals.accept(Scene("beach", make_cells(cells[:2])))
    assert not goals.accept(Scene("meadow", make_cells(cells)))
    assert not goals.accept(Scene("beach", make_cells([(0, "boat", "brown"), *cells[1:]])))


def test_a_continued_story_meets_its_goals():
    for text in ["Grow a pink flower", "Paint a winter landscape with a red house"]:
        full = plan_for(PlanRequest(text))
        for cut in range(1, len(full.steps)):
            before = final_scene(Plan(full.steps[:cut]))
            inputs = tuple(EncodedImage.of(render(before)) for _ in range(cut))
            request = PlanRequest(f"{text}. Go on and draw the rest: {'<image>' * cut}", inputs)
            rest = plan_for(request)
            assert not plan_faults(request, rest), cut
            assert plan_is_correct(request, rest), cut
            assert goals_of(request).first_step == cut + 1


def test_words_about_images_need_no_image():
    image = EncodedImage.of(render(Scene("meadow", make_cells([(4, "house", "red")]))))
    request = PlanRequest("<image> Describe this picture.", (image,))
    plan = plan_for(request)
    assert not plan_faults(request, plan)
    assert plan_is_correct(request, plan)
    assert goals_of(request).accept(None)
    assert not goals_of(request).accept(Scene())


def test_faults_are_named():
    plan = plan_for(PINK_FLOWER)
    first, *others = plan.steps
    faults = {
        "no steps": Plan(()),
        "numbered": Plan((replace(first, step_number=2), *others)),
        "were requested": Plan(tuple(plan.steps[:-1])),
        "not understood": Plan((replace(first, prompt="Imagine something nice"), *others)),
        "captions were not requested": Plan((replace(first, auxiliary_text="Look!"), *others)),
    }
    for words, broken in faults.items():
        assert any(words in fault for fault in plan_faults(PINK_FLOWER, broken)), words
    assert "captions are missing" in plan_faults(
        PlanRequest(f"{PINK_FLOWER.text} with captions"), plan
    )


def test_a_valid_plan_of_something_else_is_not_correct():
    other = plan_for(PlanRequest("Show in five pictures how to grow a blue flower"))
    assert not plan_faults(PINK_FLOWER, other)
    assert not plan_is_correct(PINK_FLOWER, other)
