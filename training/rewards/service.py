"""Computes the reward of a rollout as soon as it is there: grading overlaps with generation.

Each rollout has a request, an error handler and a line in the journal of its own, so that a
failure never affects another one.
"""

import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Protocol

from pydantic import Field

from schemas.training import RolloutRow
from schemas.yaml_config import ConfigModel
from warehouse import Journal

from .critic import CriticState
from .planner import PlannerState
from .rollouts import Rollout, RolloutResult

_STEPS_IN_MEMORY = 64  # the journal has all


class Reward(Protocol):
    """Grades the answers of a role, each to a row whose state the policy was shown."""

    async def grade(self, row_id: str, response: str, state: Any) -> RolloutResult: ...


class RewardRequest(ConfigModel):
    """The request for a rollout's reward."""

    step: int = Field(ge=1, description="Training step, 1-based")
    row_id: str = Field(description="Row that was the prompt: the rollout's group")
    response: str = Field(description="The policy's answer")
    state: CriticState | PlannerState = Field(description="What the policy was shown")
    dev: bool = Field(False, description="It is not trained on: `step` is the last one done")


class RewardService:
    """Rewards of one training run.

    Args:
        run: version of the checkpoint that is being trained.
        journal: gets a line for every rollout; `rollouts.rollout_rows` reads them.
    """

    def __init__(self, rewards: Reward, run: str, journal: Journal) -> None:
        self._rewards = rewards
        self._run, self._journal = run, journal
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
        result = await self._rewards.grade(request.row_id, request.response, request.state)
        seconds = time.perf_counter() - start
        row = RolloutRow(
            rollout_id=f"{self._run}/{request.step}/{request.row_id}/{sample}",
            run=self._run,
            step=request.step,
            row_id=request.row_id,
            response=request.response,
            status=result.status,
            verdict=result.verdict,
            refined_prompt=result.refined_prompt,
            truth=result.truth,
            image=result.image,
            format=result.parts.format,
            accuracy=result.parts.accuracy,
            step_reward=result.parts.step,
            reward=result.reward,
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

    def _store(self, row: RolloutRow, received: float, dev: bool) -> None:
        sent, attempt = received + row.seconds, self._attempt
        rollout = Rollout(attempt=attempt, received_at=received, answered_at=sent, row=row, dev=dev)
        self._journal.append(rollout.model_dump(mode="json"))
        steps = self._evaluations if dev else self._steps
        steps.setdefault(row.step, []).append(rollout)
        for old in sorted(steps)[:-_STEPS_IN_MEMORY]:
            del steps[old]
