"""A budget for all paid calls of a home, shared by its processes.

Before a call its maximum cost is reserved, afterwards the actual cost is recorded. A call that
would exceed the budget stops the run; one that would exceed it only together with reservations of
calls under way waits for these. Reservations of a killed process count as spent once its calls
must have ended: they may have been paid for.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from uuid import uuid4

from ...calls.call_context import pause_timeout
from ...roles import BackendError
from .spending import SpendingFile, record_alerts, totals

_POLL_SECONDS = 0.1
_SPEND_EXPIRED = (
    "UPDATE spent SET usd = usd + (SELECT coalesce(sum(usd), 0) FROM reserved WHERE until < ?)"
)

_log = logging.getLogger(__name__)


@dataclass
class Reservation:
    """A call under way; set `cost` to what it cost in USD (0 for a failed call)."""

    cost: float = 0.0


class Budget:
    """`usd` for the calls of a home, of which none takes longer than `max_call_seconds`.

    `path`: the local SQLite file that all processes share. `alert_at`: shares at which an alert is
    recorded and logged, by the process that reaches them.
    """

    def __init__(
        self, path: Path, usd: float, max_call_seconds: float, alert_at: Sequence[float] = ()
    ) -> None:
        self._file, self.usd = SpendingFile(path), usd
        self._max_call_seconds, self._alert_at = max_call_seconds, alert_at

    @asynccontextmanager
    async def reserve(
        self, max_cost: float, name: str | None = None, seconds: float | None = None
    ) -> AsyncIterator[Reservation]:
        """Around a call of at most `max_cost` USD and, if not the usual time, `seconds`.

        A restarted run resumes a call with a `name`, and its reservation; until then a cancelled
        one, which goes on at the provider, stays reserved.

        Raises:
            BackendError: the rest of the budget is too small.
        """
        key, until = name or uuid4().hex, time.time() + (seconds or self._max_call_seconds)
        reservation, goes_on = Reservation(), False
        try:
            async with pause_timeout():
                while not self._try_reserve(key, max_cost, until):
                    await asyncio.sleep(_POLL_SECONDS)
            yield reservation
        except asyncio.CancelledError:
            goes_on = name is not None
            raise
        finally:
            with self._booking() as connection:
                if not goes_on:
                    connection.execute("DELETE FROM reserved WHERE name = ?", (key,))
                connection.execute("UPDATE spent SET usd = usd + ?", (reservation.cost,))

    @contextmanager
    def _booking(self) -> Iterator[Connection]:
        """A transaction that may spend; the alerts that it causes are logged once it is stored."""
        with self._file.transaction() as connection:
            yield connection
            alerts = record_alerts(connection, self.usd, self._alert_at)
        for alert in alerts:
            _log.warning(alert.line)

    def _try_reserve(self, name: str, max_cost: float, until: float) -> bool:
        """False: the rest of the budget is reserved by calls under way."""
        with self._booking() as connection:
            now = (time.time(),)
            connection.execute(_SPEND_EXPIRED, now)
            connection.execute("DELETE FROM reserved WHERE until < ?", now)
            connection.execute("DELETE FROM reserved WHERE name = ?", (name,))
            spent, reserved = totals(connection)
            fits = spent + reserved + max_cost <= self.usd
            if fits:
                connection.execute("INSERT INTO reserved VALUES (?, ?, ?)", (name, max_cost, until))
        if spent + max_cost > self.usd:
            raise BackendError(
                f"the budget of {self.usd:g} USD is used up: {spent:.4g} USD are spent and the "
                f"next call may cost {max_cost:.2g}. Raise `budget.usd` in the profile and run "
                "again: calls that were paid for are not repeated"
            )
        return fits
