"""One variant on one benchmark: every request run, every stored attempt judged, each as numbers.

All calls go through one journal per benchmark, so that a killed evaluation resumes, and variants
that share an agent share its answers. Nothing is written to the tables of training data.
"""

from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from statistics import fmean

from inference.engine.calls import CallSite, ModelCalls
from inference.engine.hashing import attempt_seed
from inference.engine.progress import Progress
from inference.engine.retry import CallFailedError
from inference.engine.worker_pool import WorkerPool
from inference.events import ImageGenerated, StepAccepted, StepExhausted
from inference.grading import Grader
from inference.loop import Loop, PlannedRequest
from inference.roles import (
    Generator,
    Plan,
    PlanRequest,
    Roles,
    Scorer,
    UnusableAnswerError,
    qualified_name,
)
from inference.settings import Limits, LoopSettings
from schemas import FoundryError
from schemas.prompts import PromptRow
from schemas.training import EvaluationRow
from schemas.trajectories import ModelCallRow, QuarantineRow
from training.rewards.reward import Grades, neutral_step_reward, step_reward
from warehouse import EncodedImage, Home

from .items import AttemptItem, Benchmark
from .variants import Variant

ASSET = "evaluation"


@dataclass(frozen=True)
class EvaluationContext:
    """What all variants share: the same generator, scorer, grader and seeds.

    Attributes:
        grader: None: metrics that need one are not measured.
        loop: holds the seed of every draw and the maximum number of steps of a plan.
        in_flight: items worked on concurrently.
        redraws: number of images drawn of a rewritten prompt.
    """

    home: Home
    generator: Generator
    scorer: Scorer
    grader: Grader | None
    loop: LoopSettings
    limits: Limits
    in_flight: int
    redraws: int = 1


@dataclass(frozen=True)
class ItemResult:
    """Values of an item by metric, and the last accepted image (sha256) of a request."""

    item_id: str
    values: dict[str, float]
    final: str | None = None
    quarantine: QuarantineRow | None = None


@dataclass(frozen=True)
class BenchmarkResult:
    """Rows for `evaluations`, the last image (sha256) by request, and all calls made."""

    rows: list[EvaluationRow]
    finals: dict[str, str]
    calls: list[ModelCallRow]


async def evaluate_variant(
    context: EvaluationContext,
    variant: Variant,
    roles: Roles,
    benchmark: Benchmark,
    progress: Progress,
) -> BenchmarkResult:
    """Evaluate a variant, whose agents are in `roles`, on a benchmark.

    Plans are measured where it has a planner, verdicts and rewritten prompts where it has a
    critic.

    Raises:
        FoundryError: a model gave no answer; finished calls are journaled.
    """
    limits = context.limits.model_copy(update={"agents": context.in_flight})
    loop = context.loop.model_copy(update={"t_max": variant.t_max, "on_exhausted": "last"})
    with ModelCalls(context.home, ASSET, benchmark.name, roles, limits) as calls:
        has_planner = variant.planner is not None
        measure_request = _RequestMeasurement(calls, loop, context.grader, has_planner)
        measure_verdict = _VerdictMeasurement(calls, loop.seed, context.redraws)
        work: list[tuple[Callable, object]] = [(measure_request, r) for r in benchmark.requests]
        work += [(measure_verdict, item) for item in benchmark.attempts if variant.critic]
        pool = WorkerPool(benchmark.name, context.in_flight, 1.0, progress)
        results = await pool.map(_measure, work)
        rows = [r for each in results for r in _rows(each, variant.name, roles, benchmark.name)]
        finals = {each.item_id: each.final for each in results if each.final}
        return BenchmarkResult(rows, finals, calls.ledger())


async def _measure(work: tuple[Callable, object]) -> ItemResult:
    measure, item = work
    try:
        return await measure(item)
    except CallFailedError as error:
        raise FoundryError(f"evaluation: {error}; finished calls are stored, run again") from error


def _rows(
    result: ItemResult, variant: str, roles: Roles, benchmark: str
) -> Iterator[EvaluationRow]:
    for metric, value in result.values.items():
        yield EvaluationRow(
            benchmark=benchmark,
            variant=variant,
            item_id=result.item_id,
            metric=metric,
            value=value,
            planner=qualified_name(roles.planner),
            critic=qualified_name(roles.critic),
        )


@dataclass(frozen=True)
class _RequestMeasurement:
    """From a request to the last image of its trajectory."""

    calls: ModelCalls
    loop: LoopSettings
    grader: Grader | None
    has_planner: bool

    async def __call__(self, row: PromptRow) -> ItemResult:
        images = tuple([await self.calls.image(sha256) for sha256 in row.input_images])
        request = PlanRequest(row.text, images)
        plan, final, generator_calls = await self._plan(row, request), None, None
        if plan:
            final, generator_calls = await self._run(PlannedRequest(row.prompt_id, plan, images))
        values = await self._grades(request, plan, final) | {"generator_calls": generator_calls}
        known = {metric: float(value) for metric, value in values.items() if value is not None}
        return ItemResult(row.prompt_id, known, final.sha256 if final else None)

    async def _plan(self, row: PromptRow, request: PlanRequest) -> Plan | None:
        try:
            return (await self.calls.plan(CallSite(row.prompt_id), request)).answer
        except UnusableAnswerError:
            return None

    async def _run(self, planned: PlannedRequest) -> tuple[EncodedImage | None, int]:
        """The last accepted (or exhausted) step's image, and the number of generator calls."""
        final, generator_calls = None, 0
        try:
            async with aclosing(Loop(planned, self.calls, self.loop).events()) as events:
                async for event in events:
                    generator_calls += isinstance(event, ImageGenerated)
                    if isinstance(event, StepAccepted | StepExhausted) and event.chosen:
                        final = event.chosen.draw.image
        except UnusableAnswerError:  # a plan that cannot be followed, a prompt that cannot be drawn
            return None, generator_calls
        return final, generator_calls

    async def _grades(
        self, request: PlanRequest, plan: Plan | None, final: EncodedImage | None
    ) -> dict[str, float | None]:
        """The grader's metrics; None where it cannot give one, none without a grader."""
        grades: dict[str, float | None] = {}
        if self.grader is None:
            return grades
        if self.has_planner:
            plan_grade = await self.grader.grade_plan(request, plan)
            grades = {"plan_valid": plan_grade.valid, "plan_correct": plan_grade.correct}
        return {**grades, "final_success": await self.grader.grade_outcome(request, plan, final)}


@dataclass(frozen=True)
class _VerdictMeasurement:
    """From a stored attempt to a verdict, and to what the rewritten prompt gains.

    The seeds of draws depend on the attempt alone, so that critics can be compared attempt by
    attempt. The step reward is that of training (`training/rewards/reward.py`, the paper's form),
    over attempts that deserve to be rejected: accepting one gains nothing. `refined_gain` counts
    only those that were rejected, in points of the overall score. Both are means over `redraws`.
    """

    calls: ModelCalls
    seed: int
    redraws: int

    async def __call__(self, item: AttemptItem) -> ItemResult:
        site = CallSite(item.prompt_id, item.step_number, item.iteration)
        before = await self.calls.image(item.source) if item.source else None
        after = await self.calls.image(item.image)
        answer = await self.calls.judge(site, before, after, item.goal, item.rewritten)
        verdict = answer.answer
        correct = float(verdict.accepted == item.truth)
        if item.truth:
            return ItemResult(item.item_id, {"verdict_accuracy_true": correct})
        if verdict.accepted:
            values = {"step_reward": neutral_step_reward()}
        else:
            prompt = verdict.refined_prompt.strip() or item.rewritten or item.goal
            redrawn = [
                await self._redraw(item, site, before, prompt, n) for n in range(self.redraws)
            ]
            values = _gains(item.grades, redrawn)
        return ItemResult(item.item_id, {"verdict_accuracy_false": correct, **values})

    async def _redraw(
        self,
        item: AttemptItem,
        site: CallSite,
        before: EncodedImage | None,
        prompt: str,
        number: int,
    ) -> Grades:
        seed = attempt_seed(self.seed, f"{item.item_id} {number}", item.step_number, 0)
        try:
            sources = (before,) if before else ()
            image = (await self.calls.generate(site, prompt, sources, seed)).answer
        except UnusableAnswerError:  # a prompt that cannot be drawn: the lowest grades
            return Grades(0.0, 0.0)
        score = (await self.calls.score(site, before, image, item.goal)).score
        return Grades(score.semantics, score.quality)


def _gains(before: Grades, redrawn: list[Grades]) -> dict[str, float]:
    return {
        "step_reward": fmean(step_reward(before, after) for after in redrawn),
        "refined_gain": fmean(after.overall - before.overall for after in redrawn),
    }
