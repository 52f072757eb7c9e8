"""One variant on one benchmark: every story told, every stored attempt judged, each as numbers.

All calls go through one journal a benchmark, so that a killed evaluation goes on where it was, and
variants that share an agent share its answers. Nothing of it enters the tables of training data.
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
from inference.sketch_world.goals import goals_of
from inference.sketch_world.perception import perceive_cached
from schemas import FoundryError
from schemas.prompts import PromptRow
from schemas.training import EvaluationRow
from schemas.trajectories import ModelCallRow, QuarantineRow
from training.rewards.reward import Grades, step_reward, undrawn_reward
from warehouse import EncodedImage, Home

from .items import AttemptItem, Benchmark
from .plan_metrics import plan_faults, plan_is_correct
from .variants import Variant

ASSET = "evaluation"


@dataclass(frozen=True)
class EvaluationContext:
    """Where variants are evaluated: the same pictures, draws and grades for all of them.

    `loop` has the seed of every draw and the most steps a plan may have; `redraws` is how often a
    rewritten prompt is drawn.
    """

    home: Home
    generator: Generator
    scorer: Scorer
    loop: LoopSettings
    limits: Limits
    in_flight: int
    redraws: int = 1


@dataclass(frozen=True)
class MeasuredValue:
    """What an item came to: metric -> value, and the last picture (sha256) of a story."""

    item_id: str
    values: dict[str, float]
    final: str | None = None
    quarantine: QuarantineRow | None = None


@dataclass(frozen=True)
class Evaluated:
    """Rows for `evaluations`, the last picture of every story that has one, and all calls made."""

    rows: list[EvaluationRow]
    finals: dict[str, str]
    calls: list[ModelCallRow]


async def evaluate(
    studio: EvaluationContext,
    variant: Variant,
    roles: Roles,
    benchmark: Benchmark,
    progress: Progress,
) -> Evaluated:
    """Evaluate a variant, whose agents are in `roles`, on a benchmark.

    Plans are measured where it has a planner, verdicts and rewritten prompts where it has a
    critic.

    Raises:
        FoundryError: a model gave no answer; what is finished is kept.
    """
    limits = studio.limits.model_copy(update={"agents": studio.in_flight})
    with ModelCalls(studio.home, ASSET, benchmark.name, roles, limits) as calls:
        rules = {"t_max": variant.t_max, "on_exhausted": "last"}
        settings = studio.loop.model_copy(update=rules)
        stories = _TrajectoryMeasurement(calls, settings, plans=variant.planner is not None)
        verdicts = _VerdictMeasurement(calls, settings.seed, studio.redraws)
        work: list[tuple[Callable, object]] = [(stories, row) for row in benchmark.stories]
        work += [(verdicts, item) for item in benchmark.attempts if variant.critic]
        crew = WorkerPool(benchmark.name, studio.in_flight, 1.0, progress)
        measured = await crew.each(work, _measure)
        rows = [
            row for each in measured for row in _rows(each, variant.name, roles, benchmark.name)
        ]
        finals = {each.item_id: each.final for each in measured if each.final}
        return Evaluated(rows, finals, calls.ledger())


async def _measure(work: tuple[Callable, object]) -> MeasuredValue:
    measure, item = work
    try:
        return await measure(item)
    except CallFailedError as error:
        raise FoundryError(f"evaluation: {error}; finished calls are kept, run again") from error


def _rows(
    each: MeasuredValue, variant: str, roles: Roles, benchmark: str
) -> Iterator[EvaluationRow]:
    for metric, value in each.values.items():
        yield EvaluationRow(
            benchmark=benchmark,
            variant=variant,
            item_id=each.item_id,
            metric=metric,
            value=value,
            planner=qualified_name(roles.planner),
            critic=qualified_name(roles.critic),
        )


@dataclass(frozen=True)
class _TrajectoryMeasurement:
    """From a request to the last picture of its story."""

    calls: ModelCalls
    settings: LoopSettings
    plans: bool

    async def __call__(self, row: PromptRow) -> MeasuredValue:
        given = tuple([await self.calls.picture(sha256) for sha256 in row.input_images])
        request = PlanRequest(row.text, given)
        plan = await self._plan(row, request)
        values = _plan_values(request, plan) if self.plans else {}
        if plan is None:
            return MeasuredValue(row.prompt_id, {**values, "final_success": 0.0})
        final, draws = await self._tell(PlannedRequest(row.prompt_id, plan, given))
        told = {"final_success": _succeeded(request, final), "generator_calls": float(draws)}
        return MeasuredValue(row.prompt_id, {**values, **told}, final.sha256 if final else None)

    async def _plan(self, row: PromptRow, request: PlanRequest) -> Plan | None:
        try:
            return (await self.calls.plan(CallSite(row.prompt_id), request)).answer
        except UnusableAnswerError:
            return None

    async def _tell(self, story: PlannedRequest) -> tuple[EncodedImage | None, int]:
        """The last picture that the story went on with, and how many were drawn."""
        final, draws = None, 0
        try:
            async with aclosing(Loop(story, self.calls, self.settings).events()) as events:
                async for event in events:
                    draws += isinstance(event, ImageGenerated)
                    if isinstance(event, StepAccepted | StepExhausted) and event.chosen:
                        final = event.chosen.drawn.picture
        except UnusableAnswerError:  # a plan that cannot be followed, a prompt that cannot be drawn
            return None, draws
        return final, draws


@dataclass(frozen=True)
class _VerdictMeasurement:
    """From a stored attempt to a verdict, and to what the rewritten prompt gains.

    The draws' seeds are the attempt's alone, the same for every critic, so that critics can be
    compared attempt by attempt. The step reward is that of training (`rewards/rules.py`, the
    paper's form), over attempts that deserve to be rejected: accepting one gains nothing. The
    `refined_gain` counts only those that were rejected, in points of the overall score. Both are
    means over the draws, so that luck in drawing weighs less.
    """

    calls: ModelCalls
    seed: int
    redraws: int

    async def __call__(self, item: AttemptItem) -> MeasuredValue:
        place = CallSite(item.prompt_id, item.step_number, item.iteration)
        before = await self.calls.picture(item.source) if item.source else None
        after = await self.calls.picture(item.image)
        judged = await self.calls.judge(place, before, after, item.goal, item.rewritten)
        verdict = judged.answer
        right = float(verdict.accepted == item.truth)
        if item.truth:
            return MeasuredValue(item.item_id, {"verdict_accuracy_true": right})
        if verdict.accepted:
            values = {"step_reward": undrawn_reward()}
        else:
            prompt = verdict.refined_prompt.strip() or item.rewritten or item.goal
            drawn = [
                await self._redrawn(item, place, before, prompt, n) for n in range(self.redraws)
            ]
            values = _gains(item.grades, drawn)
        return MeasuredValue(item.item_id, {"verdict_accuracy_false": right, **values})

    async def _redrawn(
        self,
        item: AttemptItem,
        place: CallSite,
        before: EncodedImage | None,
        prompt: str,
        number: int,
    ) -> Grades:
        seed = attempt_seed(self.seed, f"{item.item_id} {number}", item.step_number, 0)
        try:
            sources = (before,) if before else ()
            picture = (await self.calls.generate(place, prompt, sources, seed)).answer
        except UnusableAnswerError:  # a prompt that cannot be drawn: as bad as a picture can be
            return Grades(0.0, 0.0)
        score = (await self.calls.score(place, before, picture, item.goal)).answer
        return Grades(score.semantics, score.quality)


def _plan_values(request: PlanRequest, plan: Plan | None) -> dict[str, float]:
    if plan is None:
        return {"plan_valid": 0.0, "plan_correct": 0.0}
    valid, correct = not plan_faults(request, plan), plan_is_correct(request, plan)
    return {"plan_valid": float(valid), "plan_correct": float(correct)}


def _succeeded(request: PlanRequest, final: EncodedImage | None) -> float:
    """1 where the picture, as it is seen, shows what was asked for and has no flaws."""
    seen = perceive_cached(final) if final else None
    flawed = bool(seen and (seen.crooked or seen.blemished))
    return float(goals_of(request).met_by(seen.scene if seen else None) and not flawed)


def _gains(before: Grades, drawn: list[Grades]) -> dict[str, float]:
    return {
        "step_reward": fmean(step_reward(before, after) for after in drawn),
        "refined_gain": fmean(after.overall - before.overall for after in drawn),
    }
