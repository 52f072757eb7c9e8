"""verl's metrics and the reward service's rollouts as progress, one point a step."""

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from warehouse import Journal

from ..launch import TrainingProgress
from ..rewards.rollouts import Rollout, summary
from .settings import GrpoSettings

_RECENT = 20  # steps whose duration foretells the rest
# What a curve is called, and verl's name for it.
_EXTRA = {
    "entropy": "actor/entropy_loss",
    "kl": "actor/kl_loss",
    "policy_change": "actor/ppo_kl",
    "clipped_share": "actor/pg_clipfrac",
    "gradient_norm": "actor/grad_norm",
    "response_tokens": "response_length/mean",
    "cut_off_share": "response_length/clip_ratio",
    "seconds": "timing_s/step",
    "generation_seconds": "timing_s/gen",
    "update_seconds": "timing_s/update_actor",
}


class GrpoLogFollower:
    """Reads verl's metrics file as it grows.

    Args:
        rollouts: the rewarded rollouts of a step.
    """

    def __init__(
        self,
        metrics: Path,
        total: int,
        settings: GrpoSettings,
        rollouts: Callable[[int], list[Rollout]],
    ) -> None:
        self._metrics, self._total, self._settings = metrics, total, settings
        self._rollouts = rollouts
        self._read = 0
        self._seconds: list[float] = []

    def new(self) -> Iterator[TrainingProgress]:
        """The steps that have ended since the last call."""
        if not self._metrics.is_file():
            return
        with self._metrics.open("rb") as stream:
            stream.seek(self._read)
            lines = [line for line in stream if line.endswith(b"\n")]
        for line in lines:
            self._read += len(line)
            record = orjson.loads(line)
            yield self._progress(record["step"], record["data"])

    def _progress(self, step: int, data: dict[str, Any]) -> TrainingProgress:
        seconds = float(data["timing_s/step"])
        self._seconds.append(seconds)
        left = (self._total - step) * median(self._seconds[-_RECENT:])
        numbers = {name: data.get(key) for name, key in _EXTRA.items()}
        known = {name: float(number) for name, number in numbers.items() if number is not None}
        rollouts = self._rollouts(step)
        return TrainingProgress(
            step=step,
            total=self._total,
            loss=data.get("actor/pg_loss"),
            reward=summary(rollouts).reward if rollouts else None,
            learning_rate=data.get("actor/lr"),
            samples_per_second=self._settings.batch * self._settings.n / seconds,
            seconds_left=left,
            extra=known | _rewards(rollouts, seconds),
        )


def _rewards(rollouts: list[Rollout], seconds: float) -> dict[str, float]:
    """What the rewards of a step say; none where it was rewarded by another process."""
    if not rollouts:
        return {}
    step = summary(rollouts)
    return {
        "masked_share": step.masked / step.rollouts,
        "malformed_share": step.malformed / step.rollouts,
        "accepted_share": step.accepted,
        "accuracy": step.accuracy,
        "step_reward": step.step_reward,
        "reward_wait_share": step.waiting_seconds / seconds,
    }


class Curves:
    """The points of a run, kept beside its checkpoints, so that a resumed one has all of them."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)

    def add(self, point: TrainingProgress) -> None:
        self._journal.append(point.model_dump(mode="json", exclude_none=True))

    def until(self, step: int) -> list[TrainingProgress]:
        """Every step up to this one once, as it was trained last."""
        points = (TrainingProgress.model_validate(r) for r in self._journal.records())
        last = {point.step: point for point in points if point.step <= step}
        return [last[number] for number in sorted(last)]

    def close(self) -> None:
        self._journal.close()
