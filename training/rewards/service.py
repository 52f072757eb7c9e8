"""Computes the reward of a rollout as soon as it is there: drawing overlaps with generation.

Each rollout has a request, an error handler and a line in the journal of its own, so that a
failure never affects another one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from pydantic import Field

from inference.calls.retry import CallOutcome, RetryingCaller, summarize_error
from inference.calls.scoring import ScoreCall, ScoredAttempt, score_with
from inference.generators import drawing_model
from inference.loop import conditioning_images
from inference.roles import Backend, Generator, Scorer, UnusableAnswerError, qualified_name
from inference.settings import Conditioning
from schemas.curation import Evaluation
from schemas.training import RolloutRow, RolloutStatus
from schemas.trajectories import Role
from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage, ImageStore, Journal

from .calls import RewardCalls
from .reward import (
    WORST,
    Grades,
    ParsedAnswer,
    RewardParts,
    RewardSettings,
    accuracy_reward,
    format_reward,
    needs_image,
    neutral_step_reward,
    parse_answer,
    step_reward,
    total_reward,
)
from .rollouts import Rollout

T = TypeVar("T")
_Redraw = tuple[str, Grades]  # sha256 of the new image, and its grades
_STEPS_IN_MEMORY = 64  # the journal has all


class RowState(ConfigModel):
    """What the policy was shown, as in a row of `critic_rl`, and its ground truth."""

    origin_prompt: str = Field(description="The plan's prompt for the step")
    rewritten_prompt: str = Field(description="Prompt of the image; empty: the plan's prompt")
    origin_image: str = Field(description="sha256 of the image before, or of the white canvas")
    evaluation: Evaluation = Field(description="Ground truth of the judged image")

    @property
    def grades(self) -> Grades:
        return Grades(self.evaluation.semantics, self.evaluation.quality)


class RewardRequest(ConfigModel):
    """The request for a rollout's reward."""

    step: int = Field(ge=1, description="Training step, 1-based")
    row_id: str = Field(description="Row of critic_rl: the rollout's group")
    response: str = Field(description="The policy's answer")
    state: RowState = Field(description="What the policy was shown")
    dev: bool = Field(False, description="It is not trained on: `step` is the last one done")


class _RolloutResult(NamedTuple):
    """A rollout's status, the parts of its reward, its first redrawn image, and who drew it."""

    status: RolloutStatus
    parts: RewardParts
    image: str | None = None
    error: str | None = None
    generator: str | None = None


class _Drawing(NamedTuple):
    """What is drawn and graded: with the seed, all that the result depends on.

    Args:
        generator: its name.
        earlier: sha256 of the trajectory's images before `origin`.
        origin: that of the image before the step; a white canvas means from scratch.
    """

    generator: str
    earlier: tuple[str, ...]
    origin: str
    goal: str
    prompt: str


class _PromptRefusedError(UnusableAnswerError):
    """The generator will not draw a prompt, whoever asks."""


class _RedrawCache:
    """Draws rewritten prompts and grades the images: bounded, with a timeout, each request once.

    Equal requests share one image, while it is being drawn and after. A failure is shared by those
    that wait for it; later requests try again.
    """

    def __init__(
        self,
        scorer: Scorer,
        images: ImageStore,
        settings: RewardSettings,
        calls: RewardCalls,
        conditioning: Conditioning,
    ) -> None:
        self._scorer, self._images, self._conditioning = scorer, images, conditioning
        self._calls = calls
        self._seeds = range(settings.seed, settings.seed + settings.draws)
        self._caller = RetryingCaller(settings.limits)
        self._tasks: dict[tuple[_Drawing, int], asyncio.Task[_Redraw]] = {}

    async def get(self, drawing: _Drawing, generator: Generator, row_id: str) -> list[_Redraw]:
        """The images of a drawing, one a seed, graded against its goal."""
        return await asyncio.gather(
            *(self._shared(drawing, generator, row_id, seed) for seed in self._seeds)
        )

    async def _shared(
        self, drawing: _Drawing, generator: Generator, row_id: str, seed: int
    ) -> _Redraw:
        key = drawing, seed
        task = self._tasks.get(key)
        if task is None:
            work = self._draw_and_grade(drawing, generator, row_id, seed)
            task = self._tasks[key] = asyncio.create_task(work)
            task.add_done_callback(partial(self._forget_failure, key))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the images that are being drawn."""
        pending = [task for task in self._tasks.values() if not task.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _draw_and_grade(
        self, drawing: _Drawing, generator: Generator, row_id: str, seed: int
    ) -> _Redraw:
        origin, goal, prompt = drawing.origin, drawing.goal, drawing.prompt
        images = await asyncio.to_thread(self._load_images, drawing, generator)
        before = images[-1] if images else None
        model = drawing_model(generator, images)
        draw = partial(model.generate, prompt, images, seed)
        try:
            request: dict[str, Any] = {"text": prompt, "before": origin if before else None}
            if earlier := [image.sha256 for image in images[:-1]]:
                request["earlier"] = earlier
            image = await self._call("generator", model, EncodedImage, draw, row_id, request)
        except UnusableAnswerError as error:
            raise _PromptRefusedError(str(error)) from error
        sha256 = await asyncio.to_thread(self._images.put, image)

        async def grade(call: ScoreCall) -> Any:
            request: dict[str, Any] = {"after": sha256}
            if call.instruction is not None:
                request |= {"text": goal, "before": origin if before else None}
            kind = call.answer_type
            return await self._call("scorer", call.backend, kind, call.send, row_id, request)

        attempt = ScoredAttempt(before, image, goal)
        score = (await score_with(self._scorer, attempt, grade)).score
        return sha256, Grades(score.semantics, score.quality)

    async def _call(
        self,
        role: Role,
        model: Backend,
        answer_type: type,
        send: Callable[[], Awaitable[T]],
        row_id: str,
        request: dict[str, Any],
    ) -> T:
        outcome: CallOutcome[T] = CallOutcome()
        try:
            await self._caller.call(role, answer_type, send, outcome=outcome)
        except asyncio.CancelledError:
            if outcome.error:
                self._calls.record(role, model, row_id, request, outcome)
            raise
        self._calls.record(role, model, row_id, request, outcome)
        if outcome.error is not None:
            raise outcome.error
        assert outcome.answer is not None  # RetryingCaller has checked it
        return outcome.answer

    def _load_images(self, drawing: _Drawing, generator: Generator) -> tuple[EncodedImage, ...]:
        """What is drawn from; nothing for the canvas that rows have where there was no image."""
        origin = self._images.get(drawing.origin)
        if origin.is_white:
            return ()
        earlier = [self._images.get(sha256) for sha256 in drawing.earlier]
        return conditioning_images(self._conditioning, generator, [*earlier, origin])

    def _forget_failure(self, key: tuple[_Drawing, int], task: asyncio.Task[_Redraw]) -> None:
        if task.cancelled() or task.exception():
            del self._tasks[key]


class RewardService:
    """Rewards of one training run.

    Args:
        generator_of: the generator that draws for a row of `critic_rl`.
        run: version of the checkpoint that is being trained.
        journal: gets a line for every rollout; `rollouts.rollout_rows` reads them.
        calls: gets a line for every call of generator and scorer.
        conditioning: as in the loop (`loop.conditioning`).
        images_of: sha256 of the images so far of a row's trajectory, the last one last; none: only
            the row's own is known.
    """

    def __init__(
        self,
        generator_of: Callable[[str], Generator],
        scorer: Scorer,
        images: ImageStore,
        settings: RewardSettings,
        run: str,
        journal: Journal,
        calls: RewardCalls,
        conditioning: Conditioning = "last",
        images_of: Callable[[str], tuple[str, ...]] = lambda _row: (),
    ) -> None:
        self.settings = settings
        self._run, self._journal = run, journal
        self._calls, self._generator_of = calls, generator_of
        self._images_of = images_of
        self._redraws = _RedrawCache(scorer, images, settings, calls, conditioning)
        self._attempt = datetime.now(UTC).isoformat()
        self._samples: Counter[tuple[int, str]] = Counter()
        self._steps: dict[int, list[Rollout]] = {}
        self._evaluations: dict[int, list[Rollout]] = {}

    async def reward(self, request: RewardRequest) -> RolloutRow:
        """The rollout with its reward, after its line is in the journal; `StorageError` if not."""
        group = (request.step, request.row_id)
        sample = self._samples[group]  # number in its group, in the order of arrival
        self._samples[group] += 1
        received, start = time.time(), time.perf_counter()
        answer = parse_answer(request.response)
        result = await self._grade(answer, request.state, request.row_id)
        seconds = time.perf_counter() - start
        parts = result.parts
        row = RolloutRow(
            rollout_id=f"{self._run}/{request.step}/{request.row_id}/{sample}",
            run=self._run,
            step=request.step,
            row_id=request.row_id,
            response=request.response,
            status=result.status,
            verdict=answer.verdict if answer else None,
            refined_prompt=answer.refined_prompt if answer else None,
            truth=request.state.evaluation.success,
            image=result.image,
            format=parts.format,
            accuracy=parts.accuracy,
            step_reward=parts.step,
            reward=None if result.status == "masked" else total_reward(parts, self.settings),
            seconds=seconds,
            error=result.error,
            generator=result.generator,
        )
        self._store(row, received, request.dev)
        return row

    def step(self, number: int) -> list[Rollout]:
        """The rollouts of a recent step, in the order in which they were rewarded."""
        return list(self._steps.get(number, ()))

    def evaluation(self, step: int) -> list[Rollout]:
        """The answers to rows that are not trained on, after a recent step."""
        return list(self._evaluations.get(step, ()))

    def recent_rows(self, steps: int) -> list[RolloutRow]:
        """The rows of the newest steps."""
        newest = sorted(self._steps)[-steps:]
        return [rollout.row for number in newest for rollout in self._steps[number]]

    async def close(self) -> None:
        """Cancel pending drawings and close the journal."""
        await self._redraws.close()
        self._journal.close()
        self._calls.journal.close()

    async def _grade(
        self, answer: ParsedAnswer | None, state: RowState, row_id: str
    ) -> _RolloutResult:
        form, truth = self.settings.form, state.evaluation.success
        parts = RewardParts(format_reward(answer))
        if answer is None:
            return _RolloutResult("malformed", parts)
        graded = replace(parts, accuracy=accuracy_reward(answer.verdict, truth, form))
        if "step" in self.settings.without:
            return _RolloutResult("scored", graded)
        if not needs_image(answer.verdict, truth, form):
            return _RolloutResult("scored", replace(graded, step=neutral_step_reward(form)))
        # without a new prompt the previous one, as the reference does
        prompt = answer.refined_prompt or state.rewritten_prompt or state.origin_prompt
        first_image, problem = None, None
        generator = self._generator_of(row_id)
        name = qualified_name(generator)
        earlier = self._images_of(row_id)[:-1]
        drawing = _Drawing(name, earlier, state.origin_image, state.origin_prompt, prompt)
        try:
            redraws = await self._redraws.get(drawing, generator, row_id)
            first_image, grades = redraws[0][0], [each for _, each in redraws]
        except _PromptRefusedError as error:  # the policy's fault
            grades, problem = [WORST], summarize_error(error)
        except Exception as error:  # of generator, scorer or image store
            return _RolloutResult("masked", parts, None, summarize_error(error), name)
        step = fmean(step_reward(state.grades, each, form) for each in grades)
        return _RolloutResult("scored", replace(graded, step=step), first_image, problem, name)

    def _store(self, row: RolloutRow, received: float, dev: bool) -> None:
        sent, attempt = received + row.seconds, self._attempt
        rollout = Rollout(attempt=attempt, received_at=received, answered_at=sent, row=row, dev=dev)
        self._journal.append(rollout.model_dump(mode="json"))
        steps = self._evaluations if dev else self._steps
        steps.setdefault(row.step, []).append(rollout)
        for old in sorted(steps)[:-_STEPS_IN_MEMORY]:
            del steps[old]
