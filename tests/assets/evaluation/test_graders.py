"""The grader of a pack: exact for the sketch world, a judge where there is one, else none."""

import asyncio

import pytest
import yaml

from assets.core.foundry import FoundryResource
from assets.core.profile import FOLDER, load_profile
from assets.evaluation.grading import describe_grader, open_grader
from inference.backends.sketch.backend import SketchPlanner
from inference.roles import OutcomeGrade, Plan, PlanGrade, PlanRequest, RequestOutcome
from inference.sketch_world.grader import SketchGrader
from tests.assets.prompts.tiny_pack import tiny_pack


@pytest.fixture
def foundry(tmp_path):
    """The sketch profile with changes."""

    def make(**changes) -> FoundryResource:
        content = yaml.safe_load((FOLDER / "sketch.yaml").read_text()) | changes
        path = tmp_path / "own.yaml"
        path.write_text(yaml.safe_dump(content))
        load_profile.cache_clear()
        return FoundryResource(profile=str(path), root=str(tmp_path / "home"))

    return make


def test_the_sketch_world_is_graded_exactly(foundry):
    with open_grader(foundry()) as grader:
        assert isinstance(grader, SketchGrader) and not grader.ledger()
    assert describe_grader(foundry()) == "sketch (exact)"


def test_a_pack_of_no_known_world_has_no_grader(foundry, tmp_path):
    tiny_pack(tmp_path)
    tiny = foundry(pack=str(tmp_path / "zoo"))
    with open_grader(tiny) as grader:
        assert grader is None
    described = describe_grader(tiny)
    assert described.startswith("none for pack") and "\n" not in described
    assert "missing: plan_valid, plan_correct, final_success" in described


def plan_grade(request: PlanRequest, plan: Plan | None) -> PlanGrade:
    return asyncio.run(SketchGrader().grade_plan(RequestOutcome("prompt", request, plan)))


def test_the_sketch_grader_grades_form_and_content():
    pink, blue = (PlanRequest(f"Show how to grow a {c} flower") for c in ("pink", "blue"))
    plan = asyncio.run(SketchPlanner().plan(pink))
    assert plan_grade(pink, plan) == PlanGrade(valid=True, correct=True)
    assert plan_grade(blue, plan) == PlanGrade(valid=True, correct=False)
    assert plan_grade(pink, Plan(())) == PlanGrade(valid=False, correct=False)


def test_an_unreadable_plan_is_wrong_also_where_nothing_should_be_drawn():
    outcome = RequestOutcome("prompt", PlanRequest("A red house"), None)
    assert plan_grade(outcome.request, None) == PlanGrade(valid=False, correct=False)
    assert asyncio.run(SketchGrader().grade_outcome(outcome)) == OutcomeGrade(success=False)
