"""The grader of a pack: exact for the sketch world, none for a pack of the real world."""

import asyncio

import pytest

from assets.core.profile import load_profile
from assets.evaluation.runner import describe_grader, grader_of
from inference.backends.sketch.agents import SketchPlanner
from inference.roles import Plan, PlanGrade, PlanRequest
from inference.sketch_world.grader import SketchGrader
from tests.assets.prompts.tiny_pack import tiny_pack

SKETCHBOOK = load_profile("sketch")


@pytest.fixture
def tiny_profile(tmp_path):
    """A profile whose pack names no world."""
    tiny_pack(tmp_path)
    return SKETCHBOOK.model_copy(update={"pack": str(tmp_path / "zoo")})


def test_the_sketch_world_is_graded_exactly():
    assert isinstance(grader_of(SKETCHBOOK), SketchGrader)
    assert describe_grader(SKETCHBOOK) == "sketch (exact)"


def test_a_pack_of_no_known_world_has_no_grader(tiny_profile):
    assert grader_of(tiny_profile) is None
    described = describe_grader(tiny_profile)
    assert described.startswith("none for pack") and "\n" not in described
    assert described.endswith("missing: plan_valid, plan_correct, final_success")


def test_the_sketch_grader_grades_form_and_content():
    pink, blue = (PlanRequest(f"Show how to grow a {c} flower") for c in ("pink", "blue"))
    plan = asyncio.run(SketchPlanner().plan(pink))
    grades = {
        "right": asyncio.run(SketchGrader().grade_plan(pink, plan)),
        "of another request": asyncio.run(SketchGrader().grade_plan(blue, plan)),
        "empty": asyncio.run(SketchGrader().grade_plan(pink, Plan(()))),
    }
    assert grades == {
        "right": PlanGrade(valid=True, correct=True),
        "of another request": PlanGrade(valid=True, correct=False),
        "empty": PlanGrade(valid=False, correct=False),
    }


def test_an_unreadable_plan_is_wrong_also_where_nothing_should_be_drawn():
    async def grades():
        request = PlanRequest("A red house")
        plan_grade = await SketchGrader().grade_plan(request, None)
        return plan_grade, await SketchGrader().grade_outcome(request, None, None)

    plan_grade, success = asyncio.run(grades())
    assert not plan_grade.valid and not plan_grade.correct and not success
