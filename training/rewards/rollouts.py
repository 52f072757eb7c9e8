"""Rollouts after their reward: the journal's lines, the table's rows, what a step came to."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
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
    """A row of the table, and when it was asked for and answered (seconds since the epoch).

    `attempt` tells apart the processes that trained one run: a step that a killed one had begun is
    sampled again by the next.
    """

    row: RolloutRow
    attempt: str
    received_at: float
    answered_at: float

    def record(self) -> dict[str, Any]:
        """The journal's line."""
        about = {"received_at": self.received_at, "answered_at": self.answered_at}
        return {"attempt": self.attempt, **about, "row": self.row.model_dump(mode="json")}


@dataclass(frozen=True)
class StepSummary:
    """A training step in numbers; means are over the rollouts that have the part."""

    rollouts: int
    masked: int
    malformed: int
    accepted: float
    reward: float
    accuracy: float
    step_reward: float
    reward_seconds: float
    waiting_seconds: float

    def metrics(self) -> dict[str, float]:
        """As curves and logs take them."""
        return {f"reward/{name}": float(value) for name, value in asdict(self).items()}


def rollout_rows(journal: Path) -> list[RolloutRow]:
    """Every rollout that training saw, in the order of their rewards.

    A step that was sampled again after an interruption counts once, as it was last.

    Raises:
        FoundryError: a line is not of this version's making.
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
        FoundryError: a line is not of this version's making.
    """
    records = enumerate(Journal(journal).records(), start=1)
    return [_rollout(record, f"{journal}:{number}") for number, record in records]


def summary(rollouts: Sequence[Rollout]) -> StepSummary:
    """What the rollouts of a step came to."""
    rows = [rollout.row for rollout in rollouts]
    return StepSummary(
        rollouts=len(rows),
        masked=sum(row.status == "masked" for row in rows),
        malformed=sum(row.status == "malformed" for row in rows),
        accepted=_mean(row.verdict for row in rows),
        reward=_mean(row.reward for row in rows),
        accuracy=_mean(row.accuracy for row in rows),
        step_reward=_mean(row.step_reward for row in rows),
        reward_seconds=_mean(row.seconds for row in rows),
        waiting_seconds=waiting_seconds(rollouts),
    )


def waiting_seconds(rollouts: Sequence[Rollout]) -> float:
    """How long a step waited for rewards alone.

    A rollout asks for its reward when it has been generated; after the last has asked, there is
    nothing left for rewards to overlap with.
    """
    if not rollouts:
        return 0.0
    last_asked = max(rollout.received_at for rollout in rollouts)
    return max(rollout.answered_at for rollout in rollouts) - last_asked


def failed_share(rows: Iterable[RolloutRow]) -> float:
    """Share of the drawings that failed; 0 where nothing was drawn."""
    drawn = [row.status == "masked" for row in rows if row.status == "masked" or row.image]
    return fmean(drawn) if drawn else 0.0


def _mean(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0


def _rollout(record: dict[str, Any], where: str) -> Rollout:
    try:
        row = RolloutRow.model_validate(record["row"])
        return Rollout(row, record["attempt"], record["received_at"], record["answered_at"])
    except (KeyError, ValidationError) as error:
        raise FoundryError(
            f"{where}: not a rollout as this version writes it; move the file away, and the run's "
            "training starts a new one"
        ) from error
