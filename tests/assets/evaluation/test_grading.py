"""Graders: exact for the sketch world, or a judge over HTTP, by what the asset `rubrics` wrote."""

import asyncio

import pytest

from assets.core.foundry import FoundryResource
from assets.core.profile import load_profile
from assets.evaluation.grading import describe_grader, open_grader, rubric_rows, rubrics_from_rows
from assets.evaluation.items import heldout_requests
from assets.evaluation.runner import compare
from assets.evaluation.variants import VARIANTS
from inference.backends.sketch.backend import SketchPlanner
from inference.calls.ask import Reply
from inference.calls.progress import NullProgress
from inference.questions import Rubric
from inference.roles import OutcomeGrade, Plan, PlanGrade, PlanRequest, RequestOutcome
from inference.sketch_world.grader import SketchGrader
from schemas.training import RUBRICS
from schemas.trajectories import MODEL_CALLS
from tests.assets.prompts.tiny_pack import tiny_pack
from tests.helpers.profiles import changed_profile
from tests.helpers.ticks import materialize_alone
from tests.inference.backends.providers.faulty_provider import KEY, provider

WRITTEN = {"image_count": None, "picture_criteria": ["a red house", "a sun"], "text_criteria": []}


def test_the_sketch_world_is_graded_exactly(home):
    foundry = FoundryResource(profile="sketch", root=home.root)
    with open_grader(foundry) as grader:
        assert isinstance(grader, SketchGrader) and not grader.ledger()
    assert describe_grader(foundry) == "sketch (exact)"


def test_a_pack_of_no_known_world_has_no_grader(home, tmp_path):
    tiny_pack(tmp_path)
    profile = changed_profile(tmp_path, pack=str(tmp_path / "zoo"))
    tiny = FoundryResource(profile=str(profile), root=home.root)
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


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    with provider() as server:
        server.rubric = WRITTEN
        yield server


@pytest.fixture
def judged(server, sample_home, tmp_path) -> FoundryResource:
    """The sample lake, in a profile whose outcomes a judge grades."""
    models = {"model": {"model": "m-2"}, "rubrics": {"model": "m-1"}}
    path = changed_profile(
        tmp_path,
        evaluation={"judge": {"backend": "openai", **models}},
        openai={"endpoints": [{"url": f"{server.url}/v1", "key": "TEST_KEY"}]},
    )
    return FoundryResource(profile=str(path), root=sample_home.root)


def test_every_held_out_request_gets_a_rubric_once_by_which_outcomes_are_graded(judged, server):
    comparison = compare(judged, [VARIANTS["generator_only"]], NullProgress())
    assert {row.metric for row in comparison.rows} == {"generator_calls"}, "no rubrics yet"

    metadata, checks = materialize_alone(judged, "rubrics")
    assert checks and all(checks.values())
    requests = heldout_requests(judged.home, "sketchbook", judged.settings.evaluation)
    rubrics = rubrics_from_rows(judged.rows(RUBRICS))
    assert set(rubrics) == {row.prompt_id for row in requests}
    assert set(rubrics.values()) == {Rubric(("a red house", "a sun"))}
    assert metadata["requests"] == len(requests) and "a red house" in metadata["criteria"]
    assert {row.role for row in judged.rows(MODEL_CALLS, "rubrics-all")} == {"rubric_writer"}
    assert materialize_alone(judged, "rubrics")[0]["requests"] == len(requests)
    assert sum(server.answered.values()) == len(requests)

    server.unmet = {"a sun"}
    comparison = compare(judged, [VARIANTS["generator_only"]], NullProgress())
    values = {
        metric: {row.value for row in comparison.rows if row.metric == metric}
        for metric in ("final_success", "criteria_met")
    }
    assert values == {"final_success": {0.0}, "criteria_met": {0.5}}
    judgements = [call for call in comparison.calls.values() if call.role == "judge"]
    items = {row.item_id for row in comparison.rows if row.metric == "criteria_met"}
    assert {call.prompt_id for call in judgements} == items, "its calls are in the ledger"
    assert describe_grader(judged).startswith("judge openai/m-2, by rubrics of")


def test_a_profile_without_a_judge_has_an_empty_table(sample_home):
    load_profile.cache_clear()
    plain = FoundryResource(profile="sketch", root=sample_home.root)
    metadata, checks = materialize_alone(plain, "rubrics")
    assert "no `evaluation.judge`" in str(metadata["rubrics"]) and all(checks.values())
    assert not plain.rows(RUBRICS)


def test_the_version_of_a_rubric_follows_from_its_criteria():
    def version(*criteria, images=None):
        rows = rubric_rows("p", Reply(Rubric(criteria, (), images)), "openai/m")
        return {row.rubric_version for row in rows}

    assert len(version("a", "b")) == 1
    assert version("a", "b") == version("a", "b")
    assert len(version("a", "b") | version("b", "a") | version("a", "b", images=2)) == 3
