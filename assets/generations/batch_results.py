"""The requests of a batch with what came of each, put together from the rows of several tables."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas import Row, Table
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import ATTEMPTS, PLANS, AttemptRow, PlanRow

Rows = dict[Table, list[Any]]


@dataclass(frozen=True)
class BatchResults:
    """Requests; the steps and attempts of each."""

    requests: Sequence[GenerationRow]
    _plans: dict[str, list[PlanRow]] = field(repr=False)
    _attempts: dict[str, list[AttemptRow]] = field(repr=False)

    @classmethod
    def of(cls, rows: Rows) -> "BatchResults":
        """Those of some rows."""
        plans, attempts = _by(rows[PLANS], "plan_id"), _by(rows[ATTEMPTS], "trajectory_id")
        return cls(rows[GENERATIONS], plans, attempts)

    def steps(self, request: GenerationRow) -> list[PlanRow]:
        """The steps that were carried out, in order."""
        plan = self._plans.get(request.plan_id or "", [])
        return sorted(plan, key=lambda step: step.step_number)[: request.steps]

    def attempts(self, request: GenerationRow) -> list[AttemptRow]:
        """What was drawn and judged."""
        return self._attempts.get(request.trajectory_id, [])


def _by(rows: Iterable[Row], column: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        found[getattr(row, column)].append(row)
    return found
