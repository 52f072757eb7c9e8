"""LLaMA-Factory's log of training as progress."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

from warehouse.atomic import atomic_write

from ..launch.jobs import TrainingProgress
from ..trainer_output import LogFollower

LOG = "trainer_log.jsonl"
_SPEED_POINTS = 20  # newest points whose median speed predicts the remaining time
_LOSS_POINTS = 10  # last points whose mean is the final loss


class SftLogFollower(LogFollower):
    """Reads the log as it grows.

    Args:
        batch: samples per step.
        done: steps of earlier attempts, which are reported again, without a speed.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self, log: Path, batch: int, done: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(log)
        self._batch, self._done, self._clock = batch, done, clock
        self._last: tuple[int, float] | None = None
        self._step_seconds: list[float] = []
        self._losses: list[float] = []

    def final_metrics(self) -> dict[str, float]:
        """Mean loss of the last points."""
        return {"loss": fmean(self._losses[-_LOSS_POINTS:])} if self._losses else {}

    def _point(self, record: dict[str, Any]) -> TrainingProgress | None:
        if "loss" not in record:  # the summary at the end
            return None
        step, total = record["current_steps"], record["total_steps"]
        self._losses.append(record["loss"])
        seconds = self._seconds_per_step(step) if step > self._done else None
        rest = (total - step) * median(self._step_seconds[-_SPEED_POINTS:]) if seconds else None
        return TrainingProgress(
            step=step,
            total=total,
            loss=record["loss"],
            learning_rate=record.get("lr"),
            samples_per_second=self._batch / seconds if seconds else None,
            seconds_left=rest,
            extra={"epoch": record["epoch"]} if "epoch" in record else {},
        )

    def _seconds_per_step(self, step: int) -> float | None:
        """Since the last point; None for the first one, whose start is unknown."""
        now, last = self._clock(), self._last
        self._last = (step, now)
        if last is None or now <= last[1] or step <= last[0]:
            return None
        self._step_seconds.append((now - last[1]) / (step - last[0]))
        return self._step_seconds[-1]


def truncate_log(log: Path, step: int) -> None:
    """Remove from a log the steps after the checkpoint that the next attempt starts from."""
    if not log.is_file():
        return
    lines = log.read_text("utf-8").splitlines()
    valid = [line for line in lines if _step_of(line) <= step]
    if valid != lines:
        atomic_write(log, "".join(f"{line}\n" for line in valid))


def _step_of(line: str) -> float:
    """Step of a line; infinite for a torn one."""
    try:
        return int(json.loads(line)["current_steps"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
