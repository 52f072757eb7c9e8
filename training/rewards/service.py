"""Computes the reward of a rollout as soon as it is there: drawing overlaps with generation.

Each rollout has a request, an error handler and a line in the journal of its own, so that a
failure never affects another one.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from statistics import fmean
from typing import NamedTuple

from pydantic import Field

from inference.calls.ask import CallSite, ModelCalls
from inference.calls.retry import summarize_error
from inference.loop import conditioning_images
from inference.roles import Generator, UnusableAnswerError, qualified_name
from inference.settings import Conditioning
from schemas.curation import Evaluation
from schemas.training import RolloutRow, RolloutStatus
from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage, Journal

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


class _PromptRefusedError(Exception):
    """The generator gives no image for a prompt, whoever asks."""


class RewardService:
    """Rewards of one training run.

    Drawings and scores are journaled calls: answers to a row that are equal share them, also after
    a restart, and a failure is asked again.

    Args:
        calls: of this run; the rows that they are for stand for prompts.
        generator_of: the generator that draws for a row of `critic_rl`.
        run: version of the checkpoint that is being trained.
        journal: gets a line for every rollout; `rollouts.rollout_rows` reads them.
        conditioning: as in the loop (`loop.conditioning`).
        images_of: sha256 of the images so far of a row's trajectory, the last one last; none: only
            the row's own is known.
    """

    def __init__(
        self,
        calls: ModelCalls,
        generator_of: Callable[[str], Generator],
        settings: RewardSettings,
        run: str,
        journal: Journal,
        conditioning: Conditioning = "last",
        images_of: Callable[[str], tuple[str, ...]] = lambda _row: (),
    ) -> None:
        self.settings = settings
        self._calls, self._generator_of = calls, generator_of
        self._run, self._journal = run, journal
        self._conditioning, self._images_of = conditioning, images_of
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
        try:
            images = await self._images_before(row_id, state.origin_image, generator)
            draw = partial(self._redraw, row_id, generator, images, state.origin_prompt, prompt)
            seeds = range(self.settings.seed, self.settings.seed + self.settings.draws)
            redraws = await asyncio.gather(*map(draw, seeds))
            first_image, grades = redraws[0][0], [each for _, each in redraws]
        except _PromptRefusedError as error:  # the policy's fault
            grades, problem = [WORST], str(error)
        except Exception as error:  # of generator, scorer or image store
            return _RolloutResult("masked", parts, None, summarize_error(error), name)
        step = fmean(step_reward(state.grades, each, form) for each in grades)
        return _RolloutResult("scored", replace(graded, step=step), first_image, problem, name)

    async def _redraw(
        self,
        row_id: str,
        generator: Generator,
        images: tuple[EncodedImage, ...],
        goal: str,
        prompt: str,
        seed: int,
    ) -> tuple[str, Grades]:
        """The sha256 of a prompt's image, and its grades against the plan's prompt."""
        calls = self._calls.with_roles(replace(self._calls.roles, generator=generator))
        site = CallSite(row_id)
        try:
            image = (await calls.generate(site, prompt, images, seed)).answer
        except UnusableAnswerError as error:
            raise _PromptRefusedError(summarize_error(error)) from error
        before = images[-1] if images else None
        score = (await calls.score(site, before, image, goal)).score
        return image.sha256, Grades(score.semantics, score.quality)

    async def _images_before(
        self, row_id: str, origin: str, generator: Generator
    ) -> tuple[EncodedImage, ...]:
        """What is drawn from; nothing for the canvas that rows have where there was no image."""
        image = await self._calls.image(origin)
        if await asyncio.to_thread(lambda: image.is_white):
            return ()
        earlier = [await self._calls.image(sha256) for sha256 in self._images_of(row_id)[:-1]]
        # It may ask a server.
        return await asyncio.to_thread(
            conditioning_images, self._conditioning, generator, [*earlier, image]
        )

    def _store(self, row: RolloutRow, received: float, dev: bool) -> None:
        sent, attempt = received + row.seconds, self._attempt
        rollout = Rollout(attempt=attempt, received_at=received, answered_at=sent, row=row, dev=dev)
        self._journal.append(rollout.model_dump(mode="json"))
        steps = self._evaluations if dev else self._steps
        steps.setdefault(row.step, []).append(rollout)
        for old in sorted(steps)[:-_STEPS_IN_MEMORY]:
            del steps[old]
