"""The grader of any pack: plans by their structure, plans and outcomes by a rubric a request.

A model wrote the rubric once (asset `rubrics`), another answers it for every plan and outcome. A
request without a rubric, and a judgement that the model refuses, are missing grades.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean

from schemas.training import RUBRICS, RubricRow
from schemas.trajectories import ModelCallRow
from warehouse import Home

from .backends.factory import Backends, Judge
from .calls.ask import CallSite, QuestionCalls
from .questions import Judgement, OutcomeJudgement, PlanJudgement, Rubric
from .roles import (
    OutcomeGrade,
    Plan,
    PlanGrade,
    PlanRequest,
    RequestOutcome,
    UnusableAnswerError,
    qualified_name,
)
from .settings import Limits


class JudgeGrader:
    """Implements `Grader` with a model. `rubrics`: by prompt id."""

    def __init__(self, calls: QuestionCalls, rubrics: Mapping[str, Rubric]) -> None:
        self.name = f"judge ({qualified_name(calls.roles)})"
        self._calls, self._rubrics = calls, rubrics

    async def grade_plan(self, outcome: RequestOutcome) -> PlanGrade:
        """Valid by structure; correct if it leads to an outcome that meets every criterion."""
        request, plan = outcome.request, outcome.plan
        rubric = self._rubrics.get(outcome.prompt_id)
        if plan is None:
            return PlanGrade(valid=False, correct=False)
        if rubric is None:
            return PlanGrade(valid=None, correct=None)
        valid = not plan_faults(request, plan, rubric)
        try:
            site = CallSite(outcome.prompt_id)
            result = await self._calls.ask(site, PlanJudgement(request, plan, rubric.criteria))
        except UnusableAnswerError:
            return PlanGrade(valid, correct=None)
        return PlanGrade(valid, all(result.answer.met))

    async def grade_outcome(self, outcome: RequestOutcome) -> OutcomeGrade:
        """Successful if every criterion is met. Without images, none about them is."""
        if outcome.plan is None:
            return OutcomeGrade(success=False, criteria_met=0.0)
        rubric = self._rubrics.get(outcome.prompt_id)
        if rubric is None:
            return OutcomeGrade(success=None)
        unmet = [] if outcome.images else [False] * len(rubric.image_criteria)
        asked = rubric.criteria if outcome.images else rubric.text_criteria
        try:
            met = [*unmet, *(await self._judge(outcome, asked)).met]
        except UnusableAnswerError:
            return OutcomeGrade(success=None)
        return OutcomeGrade(all(met), fmean(met))

    def ledger(self) -> list[ModelCallRow]:
        return self._calls.ledger()

    async def _judge(self, outcome: RequestOutcome, criteria: Sequence[str]) -> Judgement:
        if not criteria:
            return Judgement(())
        site = CallSite(outcome.prompt_id)
        return (await self._calls.ask(site, OutcomeJudgement(outcome, criteria))).answer


def plan_faults(request: PlanRequest, plan: Plan, rubric: Rubric) -> list[str]:
    """What is wrong with the form of a plan, in words; empty: it is valid."""
    return list(_faults(request, plan, rubric))


def _faults(request: PlanRequest, plan: Plan, rubric: Rubric) -> Iterator[str]:
    numbers = [step.step_number for step in plan.steps]
    if not numbers:
        yield "no steps"
        return
    first = max(numbers[0], 1) if request.images else 1  # a continued plan starts after its input
    if numbers != list(range(first, first + len(numbers))):
        yield f"steps are numbered {numbers}, not consecutively from {first}"
    drawn = [step for step in plan.steps if step.prompt is not None]
    if rubric.image_count is not None and len(drawn) != rubric.image_count:
        yield f"{len(drawn)} images, but {rubric.image_count} were requested"
    if rubric.image_criteria and not drawn:
        yield "nothing is drawn"
    if rubric.text_criteria and not any(step.text for step in plan.steps):
        yield "text was requested, but there is none"
    for step in plan.steps:
        if step.prompt is None and not step.text:
            yield f"step {step.step_number} has neither prompt nor text"


@contextmanager
def open_judge(
    home: Home, backends: Backends, judge: Judge, journal: tuple[str, str], limits: Limits
) -> Iterator[JudgeGrader]:
    """The grader of a judge, by the rubrics of a home.

    Args:
        journal: asset and partition of its calls.

    Raises:
        FoundryError: its endpoint lacks a key or a price.
    """
    model = backends.respondent("judge", home, judge.backend, judge.model)
    rows = [RubricRow.model_validate(row) for row in home.lake.read(RUBRICS).to_pylist()]
    with QuestionCalls(home, *journal, model, limits) as calls:
        yield JudgeGrader(calls, rubrics_from_rows(rows))


def rubrics_from_rows(rows: list[RubricRow]) -> dict[str, Rubric]:
    """Prompt id -> rubric, whose criteria are in the order of their numbers."""
    by_prompt: dict[str, list[RubricRow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.number):
        by_prompt[row.prompt_id].append(row)
    return {prompt_id: _rubric(criteria) for prompt_id, criteria in by_prompt.items()}


def _rubric(rows: list[RubricRow]) -> Rubric:
    images, texts = (
        tuple(row.criterion for row in rows if row.kind == kind) for kind in ("image", "text")
    )
    return Rubric(images, texts, rows[0].image_count)
