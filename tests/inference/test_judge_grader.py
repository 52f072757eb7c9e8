"""Plans by their structure, plans and outcomes by rubrics, judged over real HTTP."""

import asyncio
import re
from dataclasses import replace

import pytest
from PIL import Image

from inference.backends.factory import Backends
from inference.backends.providers.settings import JudgeModel, RubricModel
from inference.calls.ask import QuestionCalls, ask_all
from inference.calls.progress import NullProgress
from inference.judge_grader import JudgeGrader, plan_faults
from inference.questions import Rubric, RubricQuestion
from inference.roles import OutcomeGrade, Plan, PlanGrade, PlanRequest, PlanStep, RequestOutcome
from inference.settings import Limits
from schemas import FoundryError
from tests.inference.backends.providers.faulty_provider import KEY, provider
from warehouse import EncodedImage

REQUEST = PlanRequest("Show in two pictures how water boils, with a sentence each")
RUBRIC = Rubric(("a pot is on a stove", "steam rises at the end"), ("both texts name water",), 2)
WRITTEN = {
    "image_count": 2,
    "picture_criteria": list(RUBRIC.image_criteria),
    "text_criteria": list(RUBRIC.text_criteria),
}
LIMITS = Limits(tries=2, backoff_seconds=0.02)


def plan(*prompts: str | None, first: int = 1, text: str | None = "Water.") -> Plan:
    steps = enumerate(prompts, first)
    return Plan(tuple(PlanStep(n, f"step {n}", None, prompt, text) for n, prompt in steps))


PLAN = plan("A pot on a stove", "Steam rises")


def outcome(of: Plan | None = PLAN, images: int = 2) -> RequestOutcome:
    colours = ("red", "blue")
    drawn = [
        (number, EncodedImage.of(Image.new("RGB", (64, 64), colours[number - 1])))
        for number in range(1, images + 1)
    ]
    return RequestOutcome("prompt-1", REQUEST, of, tuple(drawn))


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)
    with provider() as server:
        server.rubric = WRITTEN
        yield server


def backends(server, **profile) -> Backends:
    roles = dict.fromkeys(("planner", "generator", "critic", "scorer"), "sketch")
    section = {"endpoints": [{"url": f"{server.url}/v1", "key": "TEST_KEY"}]}
    return Backends.model_validate({"roles": roles, "openai": section} | profile)


def written(server, home, **profile):
    """What the writer writes of `REQUEST`, and its calls."""
    model = RubricModel(model="m-1")
    writer = backends(server, **profile).respondent("rubric_writer", home, "openai", model)
    questions = {"prompt-1": RubricQuestion(REQUEST)}
    work = ask_all(home, "rubrics", "zoo", writer, questions, LIMITS, NullProgress())
    replies, calls = asyncio.run(work)
    return replies["prompt-1"], calls


def grades(server, home, given=None, rubric=RUBRIC):
    """Grades of plan and outcome, and the calls that were made for them."""
    model = JudgeModel(model="m-2")
    judge = backends(server).respondent("judge", home, "openai", model)
    given = given or outcome()

    async def both():
        with QuestionCalls(home, "judge", "zoo", judge, LIMITS) as calls:
            grader = JudgeGrader(calls, {"prompt-1": rubric} if rubric else {})
            plan_grade = await grader.grade_plan(given)
            return plan_grade, await grader.grade_outcome(given), grader.ledger()

    return asyncio.run(both())


def test_a_rubric_is_written_once_and_priced(server, home):
    price = {"m-1": {"input": 1.0, "output": 10.0}}
    rubric, calls = written(server, home, prices=price, budget={"usd": 1})
    assert (rubric.answer, rubric.failure) == (RUBRIC, None)
    assert [(call.role, call.asset, call.cost_usd) for call in calls] == [
        ("rubric_writer", "rubrics", 0.002)
    ]
    assert written(server, home, prices=price, budget={"usd": 1}) == (rubric, calls)
    assert sum(server.answered.values()) == 1


def test_a_rubric_without_criteria_is_requested_again_and_then_missing(server, home):
    server.rubric = {"image_count": None, "picture_criteria": [" "], "text_criteria": []}
    rubric, calls = written(server, home)
    assert rubric.answer is None and "no criterion" in rubric.failure
    assert calls[0].retries == 1


def test_an_outage_stops_the_run_and_is_no_missing_rubric(server, home):
    server.scripts = ["error"] * 2
    with pytest.raises(FoundryError, match="run again"):
        written(server, home)
    rubric, _ = written(server, home)
    assert rubric.answer == RUBRIC


def test_an_outcome_is_right_if_every_criterion_is_met(server, home):
    plan_grade, outcome_grade, calls = grades(server, home)
    assert plan_grade == PlanGrade(valid=True, correct=True)
    assert outcome_grade == OutcomeGrade(success=True, criteria_met=1.0)
    assert [(call.role, call.prompt_id, call.images) for call in calls] == [
        ("judge", "prompt-1", 0),
        ("judge", "prompt-1", 2),
    ]
    assert grades(server, home) == (plan_grade, outcome_grade, calls)
    assert sum(server.answered.values()) == 2, "judgements are made once"
    (message,) = (m for m in server.bodies[-1]["messages"] if m["role"] == "user")
    kinds = [part["type"] for part in message["content"]]
    assert kinds == ["text", "image_url", "text", "image_url", "text"]
    assert REQUEST.text in message["content"][0]["text"]
    assert all("Water." in message["content"][n]["text"] for n in (2, 4))


def test_one_criterion_that_is_not_met_is_a_share_and_no_success(server, home):
    server.unmet = {RUBRIC.image_criteria[1]}
    plan_grade, outcome_grade, _ = grades(server, home)
    assert plan_grade == PlanGrade(valid=True, correct=False)
    assert outcome_grade == OutcomeGrade(success=False, criteria_met=pytest.approx(2 / 3))


def test_the_judge_reads_what_readers_read(server, home):
    """The instruction, where a step has no text of its own."""
    for number, instruction in enumerate(("Boil water.", "Boil more water."), start=1):
        steps = tuple(replace(s, instruction=instruction, auxiliary_text=None) for s in PLAN.steps)
        grades(server, home, outcome(Plan(steps)))
        asked = [str(body["messages"]) for body in server.bodies[-2:]]
        assert [text.count(f"Text: {instruction}") for text in asked] == [2, 2]
        assert sum(server.answered.values()) == 2 * number, "no answer about other texts is reused"


def test_without_images_no_criterion_about_them_is_met(server, home):
    _, outcome_grade, calls = grades(server, home, outcome(images=0))
    assert outcome_grade == OutcomeGrade(success=False, criteria_met=pytest.approx(1 / 3))
    assert [call.images for call in calls] == [0, 0]
    _, only_pictures, calls = grades(server, home, outcome(images=0), rubric=Rubric(("a pot",)))
    assert only_pictures == OutcomeGrade(success=False, criteria_met=0.0)


def test_an_unreadable_plan_is_wrong_without_a_call(server, home):
    unreadable = outcome(of=None, images=0)
    assert grades(server, home, unreadable) == (
        PlanGrade(valid=False, correct=False),
        OutcomeGrade(success=False, criteria_met=0.0),
        [],
    )


def test_what_cannot_be_judged_is_missing(server, home):
    without_rubric = grades(server, home, rubric=None)
    assert without_rubric == (PlanGrade(None, None), OutcomeGrade(None), [])
    server.scripts = ["refuse"] * 4
    plan_grade, outcome_grade, _ = grades(server, home)
    assert plan_grade == PlanGrade(valid=True, correct=None)
    assert outcome_grade == OutcomeGrade(success=None)


def test_an_answer_that_leaves_criteria_out_is_missing(server, home):
    one_answer = '{"reasoning": "", "answers": [{"number": 1, "met": true}]}'
    server.scripts = [one_answer] * 2
    plan_grade, outcome_grade, calls = grades(server, home)
    assert plan_grade == PlanGrade(valid=True, correct=None)
    assert outcome_grade == OutcomeGrade(success=None)
    assert "1 answers to 3 criteria" in calls[0].error


def test_plans_are_valid_by_their_structure():
    for steps, fault in (
        (Plan(()), "no steps"),
        (plan("A pot"), "1 images, but 2 were requested"),
        (plan("A pot", "Steam", first=2), r"numbered \[2, 3\], not consecutively from 1"),
        (plan("A pot", "Steam", text=None), "text was requested"),
        (plan(None, None), "nothing is drawn"),
        (plan("A pot", "Steam", None, text=""), "step 3 has neither prompt nor text"),
    ):
        assert re.search(fault, "; ".join(plan_faults(REQUEST, steps, RUBRIC)))
    assert not plan_faults(REQUEST, PLAN, RUBRIC)
    continued = PlanRequest("Go on", (EncodedImage.white((64, 64)),))
    for first in (1, 2):  # a plan that continues images may start after them
        assert not plan_faults(continued, plan("Steam", first=first), Rubric(("a pot",)))
