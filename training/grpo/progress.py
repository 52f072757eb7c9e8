"""verl's metrics and the reward service's rollouts as progress, one point a step."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from warehouse import Journal

from ..launch.jobs import TrainingProgress
from ..rewards.rollouts import Rollout, summarize
from ..trainer_output import LogFollower
from .settings import GrpoSettings

_SPEED_STEPS = 20  # newest steps whose median duration predicts the remaining time
# Name of a curve -> verl's metric.
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


class GrpoLogFollower(LogFollower):
    """Reads verl's metrics file as it grows.

    Args:
        rollouts: the rewarded rollouts of a step; none where another process rewarded them.
    """

    def __init__(
        self,
        metrics: Path,
        total: int,
        settings: GrpoSettings,
        rollouts: Callable[[int], list[Rollout]],
    ) -> None:
        super().__init__(metrics)
        self._total, self._settings, self._rollouts = total, settings, rollouts
        self._seconds: list[float] = []

    def _point(self, record: dict[str, Any]) -> TrainingProgress:
        step, metrics = record["step"], record["data"]
        seconds = float(metrics["timing_s/step"])
        self._seconds.append(seconds)
        values = {name: metrics.get(key) for name, key in _EXTRA.items()}
        extra = {name: float(value) for name, value in values.items() if value is not None}
        rollouts = self._rollouts(step)
        return TrainingProgress(
            step=step,
            total=self._total,
            loss=metrics.get("actor/pg_loss"),
            reward=summarize(rollouts).reward if rollouts else None,
            learning_rate=metrics.get("actor/lr"),
            samples_per_second=self._settings.batch * self._settings.n / seconds,
            seconds_left=(self._total - step) * median(self._seconds[-_SPEED_STEPS:]),
            extra=extra | _reward_figures(rollouts, seconds),
        )


def _reward_figures(rollouts: list[Rollout], seconds: float) -> dict[str, float]:
    """Figures of a step's rewards."""
    if not rollouts:
        return {}
    step = summarize(rollouts)
    return {
        "masked_share": step.masked / step.rollouts,
        "malformed_share": step.malformed / step.rollouts,
        "accepted_share": step.accepted,
        "accuracy": step.accuracy,
        "step_reward": step.step_reward,
        "reward_wait_share": step.waiting_seconds / seconds,
    }


class Curves:
    """The points of a run in a journal beside its checkpoints, from which a resumed run goes on."""

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)

    def add(self, point: TrainingProgress) -> None:
        self._journal.append(point.model_dump(mode="json", exclude_none=True))

    def up_to(self, step: int) -> list[TrainingProgress]:
        """Every step up to this one once, as of the last attempt that trained it."""
        points = (TrainingProgress.model_validate(r) for r in self._journal.records())
        last = {point.step: point for point in points if point.step <= step}
        return [last[number] for number in sorted(last)]

    def close(self) -> None:
        self._journal.close()
