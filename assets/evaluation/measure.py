"""One variant on one benchmark: every request run, every stored attempt judged, each as numbers.

All calls go through one journal per benchmark, so that a killed evaluation resumes, and variants
that share an agent share its answers. Nothing is written to the tables of training data.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean

from inference.calls.ask import CallSite, ModelCalls
from inference.calls.hashing import attempt_seed
from inference.calls.progress import Progress
from inference.generators import roles_of_prompt
from inference.loop import Loop, conditioning_images, drawn_images
from inference.roles import (
    Grader,
    OutcomeGrade,
    PlanGrade,
    PlanRequest,
    RequestOutcome,
    Roles,
    UnusableAnswerError,
    qualified_name,
)
from inference.settings import LoopSettings
from schemas.prompts import PromptRow
from schemas.training import EvaluationRow
from schemas.trajectories import ModelCallRow
from training.rewards.critic import images_so_far
from training.rewards.reward import Grades, neutral_step_reward, step_reward
from warehouse import EncodedImage, Home

from ..core.profile import Profile
from .items import HeldOutItems, StoredAttempt
from .metrics import SUCCESS
from .variants import Variant

ASSET = "evaluation"


@dataclass(frozen=True)
class ItemResult:
    item_id: str
    prompt_id: str
    values: dict[str, float | None]  # by metric; None: nobody says it, or there is none
    final: str | None = None  # sha256 of a request's last accepted image


@dataclass(frozen=True)
class VariantResult:
    rows: list[EvaluationRow]
    finals: dict[str, str]  # request -> sha256 of its last image
    calls: list[ModelCallRow]  # all that were made


async def evaluate_variant(
    home: Home,
    profile: Profile,
    grader: Grader | None,
    variant: Variant,
    roles: Roles,
    benchmark: HeldOutItems,
    progress: Progress,
) -> VariantResult:
    """Evaluate a variant, whose agents are in `roles`, on a benchmark.

    Plans are measured where it has a planner, verdicts and rewritten prompts where it has a
    critic, and what a grader says where there is one.

    Raises FoundryError where a model gave no answer; finished calls are journaled.
    """
    settings = profile.evaluation
    limits = profile.limits.model_copy(update={"agents": settings.in_flight})
    changes = {"t_max": variant.t_max, "on_exhausted": "last", "seed": settings.seed}
    loop = profile.loop.model_copy(update=changes)
    items: list[PromptRow | StoredAttempt] = [*benchmark.requests]
    items += benchmark.attempts if variant.critic else ()
    with ModelCalls(home, ASSET, benchmark.journal, roles, limits) as calls:
        has_planner = variant.planner is not None
        so_far: Mapping[str, Sequence[str]] = {}
        if variant.critic and loop.conditioning != "last":
            so_far = images_so_far(home, [item.item_id for item in benchmark.attempts])
        measurement = _Measurement(calls, loop, grader, has_planner, settings.redraws, so_far)
        results = await calls.map(measurement.measure, items, settings.in_flight, progress)
        shared = {
            "benchmark": benchmark.name,
            "variant": variant.name,
            "planner": qualified_name(roles.planner),
            "critic": qualified_name(roles.critic),
            "training_seed": variant.training_seed,
        }
        rows = [
            EvaluationRow(
                item_id=result.item_id,
                prompt_id=result.prompt_id,
                metric=metric,
                value=float(value),
                **shared,
            )
            for result in results
            for metric, value in result.values.items()
            if value is not None
        ]
        finals = {result.item_id: result.final for result in results if result.final}
        return VariantResult(rows, finals, calls.ledger())


@dataclass(frozen=True)
class _Measurement:
    """Makes values of a request (by running it) or of a stored attempt (by judging it).

    The seeds of redraws depend on the attempt alone, so that critics can be compared attempt by
    attempt.
    """

    calls: ModelCalls
    loop: LoopSettings
    grader: Grader | None
    has_planner: bool
    redraws: int
    images_so_far: Mapping[str, Sequence[str]]  # sha256 by attempt, where all are drawn from

    async def measure(self, item: PromptRow | StoredAttempt) -> ItemResult:
        if isinstance(item, PromptRow):
            return await self._measure_request(item)
        return await self._measure_verdict(item)

    async def _measure_request(self, row: PromptRow) -> ItemResult:
        images = tuple([await self.calls.image(sha256) for sha256 in row.input_images])
        request = PlanRequest(row.text, images)
        outcome, generator_calls = RequestOutcome(row.prompt_id, request, None), None
        with suppress(UnusableAnswerError):
            plan = (await self.calls.plan(CallSite(row.prompt_id), request)).answer
            outcome = replace(outcome, plan=plan)
            loop = Loop(self.calls, self.loop, row.prompt_id, plan, images)
            drawn, generator_calls = await drawn_images(loop)
            outcome = replace(outcome, images=tuple(drawn.items()))
        plan_grade, grade = PlanGrade(None, None), OutcomeGrade(None)
        if self.grader and self.has_planner:
            plan_grade = await self.grader.grade_plan(outcome)
        if self.grader:
            grade = await self.grader.grade_outcome(outcome)
        values = {
            "plan_valid": plan_grade.valid,
            "plan_correct": plan_grade.correct,
            SUCCESS: grade.success,
            "criteria_met": grade.criteria_met,
            "generator_calls": generator_calls,
        }
        final = outcome.final.sha256 if outcome.final else None
        return ItemResult(row.prompt_id, row.prompt_id, values, final)

    async def _measure_verdict(self, item: StoredAttempt) -> ItemResult:
        before = await self.calls.image(item.source_image) if item.source_image else None
        after = await self.calls.image(item.image)
        answer = await self.calls.judge(item.site, before, after, item.goal, item.rewritten)
        verdict = answer.answer
        values: dict[str, float | None] = {"verdict_accuracy_true": verdict.accepted}
        if not item.truth:
            # The reward of training, in the paper's form; accepting what deserves a rejection gains
            # nothing. `refined_gain` is in points of the overall score, of rejections alone.
            reward = neutral_step_reward()
            values = {"verdict_accuracy_false": not verdict.accepted, "step_reward": reward}
            if not verdict.accepted:
                prompt = verdict.refined_prompt.strip() or item.rewritten or item.goal
                drawn = [await self._redraw(item, before, prompt, n) for n in range(self.redraws)]
                values["step_reward"] = fmean(step_reward(item.grades, each) for each in drawn)
                values["refined_gain"] = fmean(each.overall - item.grades.overall for each in drawn)
        return ItemResult(item.item_id, item.prompt_id, values)

    async def _redraw(
        self, item: StoredAttempt, before: EncodedImage | None, prompt: str, number: int
    ) -> Grades:
        earlier = self.images_so_far.get(item.item_id, ())[:-1]
        so_far = [await self.calls.image(sha256) for sha256 in earlier]
        if before:
            so_far.append(before)
        seed = attempt_seed(self.loop.seed, f"{item.item_id} {number}", item.step_number, 0)
        own = roles_of_prompt(self.calls.roles, item.prompt_id)  # of a mix, who drew the attempt
        try:
            sources = await asyncio.to_thread(
                conditioning_images, self.loop.conditioning, own.generator, so_far
            )
            drawn = await self.calls.with_roles(own).generate(item.site, prompt, sources, seed)
            image = drawn.answer
        except UnusableAnswerError:  # a prompt that cannot be drawn: the lowest grades
            return Grades(0.0, 0.0)
        score = (await self.calls.score(item.site, before, image, item.goal)).score
        return Grades(score.semantics, score.quality)
