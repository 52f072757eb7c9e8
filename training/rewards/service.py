"""Computes the reward of a rollout as soon as it is there: drawing overlaps with generation.

Each rollout has a request, an error handler and a line in the journal of its own, so that a
failure never affects another one.
"""

import time
from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import Field

from inference.engine.retry import summarize_error
from inference.roles import Generator, Scorer
from schemas.curation import Evaluation
from schemas.training import RolloutRow, RolloutStatus
from schemas.yaml_config import ConfigModel
from warehouse import ImageStore, Journal

from .answer_parsing import ParsedAnswer, parse_answer
from .redraw_cache import RedrawCache, RedrawRequest, RedrawResult
from .reward import (
    Grades,
    RewardParts,
    accuracy_reward,
    format_reward,
    needs_image,
    neutral_step_reward,
    step_reward,
    total_reward,
)
from .rollouts import Rollout
from .settings import RewardSettings

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


class _RolloutResult(NamedTuple):
    """A rollout's status and the parts of its reward."""

    status: RolloutStatus
    parts: RewardParts
    redraw: RedrawResult | None = None
    error: str | None = None


class RewardService:
    """Rewards of one training run.

    Args:
        run: version of the checkpoint that is being trained.
        journal: gets a line for every rollout; `rollouts.rollout_rows` reads them.
    """

    def __init__(
        self,
        generator: Generator,
        scorer: Scorer,
        images: ImageStore,
        settings: RewardSettings,
        run: str,
        journal: Journal,
    ) -> None:
        self.settings = settings
        self._run, self._journal = run, journal
        self._redraws = RedrawCache(generator, scorer, images, settings)
        self._attempt = datetime.now(UTC).isoformat()
        self._samples: Counter[tuple[int, str]] = Counter()
        self._steps: dict[int, list[Rollout]] = {}

    async def reward(self, request: RewardRequest) -> RolloutRow:
        """The rollout with its reward, after its line is in the journal.

        Raises:
            StorageError: the journal cannot be written.
        """
        sample = self._next_sample(request)
        received, start = time.time(), time.perf_counter()
        answer = parse_answer(request.response)
        result = await self._grade(answer, request.state)
        seconds = time.perf_counter() - start
        row = self._row(request, sample, answer, result, seconds)
        self._store(Rollout(row, self._attempt, received, received + seconds))
        return row

    def step(self, number: int) -> list[Rollout]:
        """The rollouts of a recent step, in the order in which they were rewarded."""
        return list(self._steps.get(number, ()))

    def recent(self, steps: int) -> list[Rollout]:
        """The rollouts of the newest steps."""
        newest = sorted(self._steps)[-steps:]
        return [rollout for number in newest for rollout in self._steps[number]]

    async def close(self) -> None:
        """Cancel pending drawings and close the journal."""
        await self._redraws.close()
        self._journal.close()

    async def _grade(self, answer: ParsedAnswer | None, state: RowState) -> _RolloutResult:
        form = self.settings.form
        if answer is None:
            return _RolloutResult("malformed", RewardParts(format_reward(answer)))
        truth = state.evaluation.success
        parts = RewardParts(format_reward(answer), accuracy_reward(answer.verdict, truth, form))
        if "step" in self.settings.without:
            return _RolloutResult("scored", parts)
        if not needs_image(answer.verdict, truth, form):
            return _scored(parts, neutral_step_reward(form))
        # without a new prompt the previous one, as the reference does
        prompt = answer.refined_prompt or state.rewritten_prompt or state.origin_prompt
        try:
            redraw = await self._redraws.get(
                RedrawRequest(state.origin_image, state.origin_prompt, prompt)
            )
        except Exception as error:  # of generator, scorer or image store
            return _RolloutResult("masked", RewardParts(parts.format), error=summarize_error(error))
        return _scored(parts, step_reward(state.grades, redraw.grades, form), redraw)

    def _row(
        self,
        request: RewardRequest,
        sample: int,
        answer: ParsedAnswer | None,
        result: _RolloutResult,
        seconds: float,
    ) -> RolloutRow:
        parts = result.parts
        masked = result.status == "masked"
        return RolloutRow(
            rollout_id=f"{self._run}/{request.step}/{request.row_id}/{sample}",
            run=self._run,
            step=request.step,
            row_id=request.row_id,
            response=request.response,
            status=result.status,
            verdict=answer.verdict if answer else None,
            refined_prompt=answer.refined_prompt if answer else None,
            truth=request.state.evaluation.success,
            image=result.redraw.image if result.redraw else None,
            format=parts.format,
            accuracy=parts.accuracy,
            step_reward=parts.step,
            reward=None if masked else total_reward(parts, self.settings),
            seconds=seconds,
            error=result.error,
        )

    def _next_sample(self, request: RewardRequest) -> int:
        """Number of a rollout in its group, in the order of arrival."""
        key = (request.step, request.row_id)
        self._samples[key] += 1
        return self._samples[key] - 1

    def _store(self, rollout: Rollout) -> None:
        self._journal.append(rollout.record())
        self._steps.setdefault(rollout.row.step, []).append(rollout)
        for old in sorted(self._steps)[:-_STEPS_IN_MEMORY]:
            del self._steps[old]


def _scored(parts: RewardParts, step: float, redraw: RedrawResult | None = None) -> _RolloutResult:
    return _RolloutResult("scored", RewardParts(parts.format, parts.accuracy, step), redraw)
