"""The reward of a rollout, computed as soon as the rollout is there, so that drawing overlaps with
generation.

Rollouts are independent: each has its own request, its own try and its own line in the journal, so
that whatever happens to one never reaches another.
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
from .redraw_cache import Redraw, RedrawCache, Redrawn
from .reward import (
    Grades,
    RewardParts,
    accuracy_reward,
    format_reward,
    is_drawn,
    step_reward,
    total,
    undrawn_reward,
)
from .rollouts import Rollout
from .settings import RewardSettings

_STEPS_KEPT = 64  # in memory; the journal keeps all


class RowState(ConfigModel):
    """What the policy was shown, as a row of `critic_rl` has it, and the truth about it."""

    origin_prompt: str = Field(description="The plan's prompt for the step")
    rewritten_prompt: str = Field(description="What made the picture; empty: the plan's prompt")
    origin_image: str = Field(description="sha256 of the picture before, or the white canvas")
    evaluation: Evaluation = Field(description="Ground truth of the picture that was judged")

    @property
    def previous_prompt(self) -> str:
        return self.rewritten_prompt or self.origin_prompt

    @property
    def grades(self) -> Grades:
        return Grades(self.evaluation.semantics, self.evaluation.quality)


class RewardRequest(ConfigModel):
    """A rollout that wants its reward."""

    step: int = Field(ge=1, description="Training step, 1-based")
    row_id: str = Field(description="Row of critic_rl: the rollout's group")
    response: str = Field(description="What the policy answered")
    state: RowState = Field(description="What it answered to")


class _Outcome(NamedTuple):
    """What became of a rollout."""

    status: RolloutStatus
    parts: RewardParts
    redrawn: Redrawn | None = None
    error: str | None = None


class RewardService:
    """Rewards of one training run.

    Args:
        run: version of the checkpoint that is being trained.
        journal: every rollout gets a line; `rollouts.rollout_rows` reads them.
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
        self._places: Counter[tuple[int, str]] = Counter()
        self._steps: dict[int, list[Rollout]] = {}

    async def reward(self, request: RewardRequest) -> RolloutRow:
        """The rollout with its reward, after its line is in the journal.

        Raises:
            StorageError: the journal cannot be written.
        """
        place = self._place(request)
        received, start = time.time(), time.perf_counter()
        answer = parse_answer(request.response)
        outcome = await self._outcome(answer, request.state)
        seconds = time.perf_counter() - start
        row = self._row(request, place, answer, outcome, seconds)
        self._keep(Rollout(row, self._attempt, received, received + seconds))
        return row

    def step(self, number: int) -> list[Rollout]:
        """The rollouts of a recent step, in the order in which they were rewarded."""
        return list(self._steps.get(number, ()))

    def recent(self, steps: int) -> list[Rollout]:
        """The rollouts of the newest steps."""
        newest = sorted(self._steps)[-steps:]
        return [rollout for number in newest for rollout in self._steps[number]]

    async def close(self) -> None:
        """Give up what is under way, let go of the journal."""
        await self._redraws.close()
        self._journal.close()

    async def _outcome(self, answer: ParsedAnswer | None, state: RowState) -> _Outcome:
        form = self.settings.form
        if answer is None:
            return _Outcome("malformed", RewardParts(format_reward(answer)))
        truth = state.evaluation.success
        parts = RewardParts(format_reward(answer), accuracy_reward(answer.verdict, truth, form))
        if "step" in self.settings.without:
            return _Outcome("scored", parts)
        if not is_drawn(answer.verdict, truth, form):
            return _scored(parts, undrawn_reward(form))
        try:
            redrawn = await self._redraws.of(_redraw(answer, state))
        except Exception as error:  # of generator, scorer or image store: this one rollout's
            return _Outcome("masked", RewardParts(parts.format), error=summarize_error(error))
        return _scored(parts, step_reward(state.grades, redrawn.grades, form), redrawn)

    def _row(
        self,
        request: RewardRequest,
        place: int,
        answer: ParsedAnswer | None,
        outcome: _Outcome,
        seconds: float,
    ) -> RolloutRow:
        parts = outcome.parts
        masked = outcome.status == "masked"
        return RolloutRow(
            rollout_id=f"{self._run}/{request.step}/{request.row_id}/{place}",
            run=self._run,
            step=request.step,
            row_id=request.row_id,
            response=request.response,
            status=outcome.status,
            verdict=answer.verdict if answer else None,
            refined_prompt=answer.refined_prompt if answer else None,
            truth=request.state.evaluation.success,
            image=outcome.redrawn.image if outcome.redrawn else None,
            format=parts.format,
            accuracy=parts.accuracy,
            step_reward=parts.step,
            reward=None if masked else total(parts, self.settings),
            seconds=seconds,
            error=outcome.error,
        )

    def _place(self, request: RewardRequest) -> int:
        """Rollouts of a group are numbered as they come."""
        key = (request.step, request.row_id)
        self._places[key] += 1
        return self._places[key] - 1

    def _keep(self, rollout: Rollout) -> None:
        self._journal.append(rollout.record())
        self._steps.setdefault(rollout.row.step, []).append(rollout)
        for old in sorted(self._steps)[:-_STEPS_KEPT]:
            del self._steps[old]


def _scored(parts: RewardParts, step: float, redrawn: Redrawn | None = None) -> _Outcome:
    return _Outcome("scored", RewardParts(parts.format, parts.accuracy, step), redrawn)


def _redraw(answer: ParsedAnswer, state: RowState) -> Redraw:
    """What to draw; without a new prompt the one before once more, as the reference does."""
    prompt = answer.refined_prompt or state.previous_prompt
    return Redraw(state.origin_image, state.origin_prompt, prompt)
