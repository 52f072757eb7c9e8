"""Rewarded rollouts: lines of the journal, rows of the table, summaries of steps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from schemas import FoundryError
from schemas.training import ROLLOUTS, RolloutRow
from warehouse import Journal


@dataclass(frozen=True)
class Rollout:
    """A row of the table, and when its reward was requested and sent (seconds since the epoch).

    `attempt` identifies the process: a step that a killed one had begun is sampled again by the
    next.
    """

    row: RolloutRow
    attempt: str
    received_at: float
    answered_at: float

    def record(self) -> dict[str, Any]:
        """The journal's line."""
        times = {"received_at": self.received_at, "answered_at": self.answered_at}
        return {"attempt": self.attempt, **times, "row": self.row.model_dump(mode="json")}


@dataclass(frozen=True)
class StepSummary:
    """Figures of a training step; means are over the rollouts that have the part."""

    rollouts: int
    masked: int
    malformed: int
    accepted: float
    reward: float
    accuracy: float
    step_reward: float
    waiting_seconds: float


def rollout_rows(journal: Path) -> list[RolloutRow]:
    """Every rollout that training used, in the order of their rewards.

    Of a step that was sampled again after an interruption, only the last sample counts.

    Raises:
        FoundryError: a line has not the form of this version.
    """
    rollouts = read_rollouts(journal)
    last = {rollout.row.step: rollout.attempt for rollout in rollouts}
    return [rollout.row for rollout in rollouts if rollout.attempt == last[rollout.row.step]]


def rollouts_table(journal: Path) -> pa.Table:
    """`rollout_rows` with the schema of the table `rollouts`."""
    return ROLLOUTS.to_arrow(rollout_rows(journal))


def read_rollouts(journal: Path) -> list[Rollout]:
    """The lines of a journal; none where there is no file.

    Raises:
        FoundryError: a line has not the form of this version.
    """
    records = enumerate(Journal(journal).records(), start=1)
    return [_rollout(record, f"{journal}:{number}") for number, record in records]


def summarize(rollouts: Sequence[Rollout]) -> StepSummary:
    """The figures of a step's rollouts."""
    rows = [rollout.row for rollout in rollouts]
    return StepSummary(
        rollouts=len(rows),
        masked=sum(row.status == "masked" for row in rows),
        malformed=sum(row.status == "malformed" for row in rows),
        accepted=_mean(row.verdict for row in rows),
        reward=_mean(row.reward for row in rows),
        accuracy=_mean(row.accuracy for row in rows),
        step_reward=_mean(row.step_reward for row in rows),
        waiting_seconds=waiting_seconds(rollouts),
    )


def waiting_seconds(rollouts: Sequence[Rollout]) -> float:
    """Seconds that a step waited for rewards alone.

    A rollout requests its reward when it has been generated; after the last request, no generation
    overlaps with rewards.
    """
    if not rollouts:
        return 0.0
    last_request = max(rollout.received_at for rollout in rollouts)
    return max(rollout.answered_at for rollout in rollouts) - last_request


def failed_share(rows: Iterable[RolloutRow]) -> float:
    """Share of the redrawn images that failed; 0 where none was requested."""
    failed = [row.status == "masked" for row in rows if row.status == "masked" or row.image]
    return fmean(failed) if failed else 0.0


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0


def _rollout(record: dict[str, Any], where: str) -> Rollout:
    try:
        row = RolloutRow.model_validate(record["row"])
        return Rollout(row, record["attempt"], record["received_at"], record["answered_at"])
    except (KeyError, ValidationError) as error:
        raise FoundryError(
            f"{where}: not a rollout of this version; move the file away, and the run's training "
            "starts a new one"
        ) from error
