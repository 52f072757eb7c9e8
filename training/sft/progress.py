"""LLaMA-Factory's log of training as progress."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ..launch import TrainingProgress

LOG = "trainer_log.jsonl"
_RECENT = 20  # points whose speed foretells the rest
_LAST = 10  # points whose mean is the final loss


class SftLogFollower:
    """Reads the log as it grows.

    Steps up to `done` were trained by earlier attempts: they are told again, without a speed.

    Args:
        batch: samples per step.
        clock: seconds of a clock that never jumps.
    """

    def __init__(
        self, log: Path, batch: int, done: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._batch, self._done, self._clock = log, batch, done, clock
        self._read = 0
        self._last: tuple[int, float] | None = None
        self._step_seconds: list[float] = []
        self.losses: list[float] = []

    def new(self) -> Iterator[TrainingProgress]:
        """The points that were logged since the last call."""
        if not self._log.is_file():
            return
        with self._log.open("rb") as stream:
            stream.seek(self._read)
            lines = [line for line in stream if line.endswith(b"\n")]
        for line in lines:
            self._read += len(line)
            record = json.loads(line)
            if "loss" in record:  # the last line has none
                yield self._point(record)

    def final(self) -> dict[str, float]:
        """The figures of the end."""
        return {"loss": fmean(self.losses[-_LAST:])} if self.losses else {}

    def _point(self, record: dict[str, Any]) -> TrainingProgress:
        step, total = record["current_steps"], record["total_steps"]
        self.losses.append(record["loss"])
        seconds = self._seconds_per_step(step) if step > self._done else None
        left = (total - step) * median(self._step_seconds[-_RECENT:]) if seconds else None
        return TrainingProgress(
            step=step,
            total=total,
            loss=record["loss"],
            learning_rate=record.get("lr"),
            samples_per_second=self._batch / seconds if seconds else None,
            seconds_left=left,
            extra={"epoch": record["epoch"]} if "epoch" in record else {},
        )

    def _seconds_per_step(self, step: int) -> float | None:
        """Since the last point; unknown for the first one, whose start was not seen."""
        now, last = self._clock(), self._last
        self._last = (step, now)
        if last is None or now <= last[1] or step <= last[0]:
            return None
        self._step_seconds.append((now - last[1]) / (step - last[0]))
        return self._step_seconds[-1]


def forget_after(log: Path, step: int) -> None:
    """Take out of a log what an attempt did after the checkpoint that the next one starts from."""
    if not log.is_file():
        return
    lines = log.read_text("utf-8").splitlines()
    kept = [line for line in lines if _step(line) <= step]
    if kept != lines:
        draft = log.with_suffix(".partial")
        draft.write_text("".join(f"{line}\n" for line in kept), "utf-8")
        draft.replace(log)


def _step(line: str) -> float:
    """Step of a line; infinite for half a line."""
    try:
        return int(json.loads(line)["current_steps"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
