"""A budget for all paid calls of a home, shared by its processes.

Before a call its maximum cost is reserved, afterwards the actual cost is recorded. A call that
would exceed the budget stops the run; one that would exceed it only together with reservations of
calls under way waits for these. Reservations of a killed process count as spent once its calls
must have ended: they may have been paid for.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from warehouse.sqlite_file import SqliteFile

from ...engine.call_context import pause_timeout
from ...roles import BackendError

_POLL_SECONDS = 0.1
_CREATE_TABLES = (
    "CREATE TABLE IF NOT EXISTS spent (id INTEGER PRIMARY KEY, usd REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS reserved "
    "(name TEXT PRIMARY KEY, usd REAL NOT NULL, until REAL NOT NULL)",
    "INSERT OR IGNORE INTO spent VALUES (1, 0)",
)
_TOTALS = "SELECT (SELECT usd FROM spent), (SELECT coalesce(sum(usd), 0) FROM reserved)"
_SPEND_EXPIRED = (
    "UPDATE spent SET usd = usd + (SELECT coalesce(sum(usd), 0) FROM reserved WHERE until < ?)"
)


@dataclass
class Reservation:
    """A call under way; set `cost` to what it cost in USD (0 for a failed call)."""

    cost: float = 0.0


class Budget:
    """`usd` for the calls of a home, of which none takes longer than `max_call_seconds`.

    `path`: the local SQLite file that all processes share.
    """

    def __init__(self, path: Path, usd: float, max_call_seconds: float) -> None:
        self._file, self.usd = SqliteFile(path, [_CREATE_TABLES]), usd
        self._max_call_seconds = max_call_seconds

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
            with self._file.transaction() as connection:
                if not goes_on:
                    connection.execute("DELETE FROM reserved WHERE name = ?", (key,))
                connection.execute("UPDATE spent SET usd = usd + ?", (reservation.cost,))

    def _try_reserve(self, name: str, max_cost: float, until: float) -> bool:
        """False: the rest of the budget is reserved by calls under way."""
        with self._file.transaction() as connection:
            now = (time.time(),)
            connection.execute(_SPEND_EXPIRED, now)
            connection.execute("DELETE FROM reserved WHERE until < ?", now)
            connection.execute("DELETE FROM reserved WHERE name = ?", (name,))
            spent, reserved = connection.execute(_TOTALS).fetchone()
            if spent + max_cost > self.usd:
                raise BackendError(
                    f"the budget of {self.usd:g} USD is used up: {spent:.4g} USD are spent and the "
                    f"next call may cost {max_cost:.2g}. Raise `budget.usd` in the profile and run "
                    "again: calls that were paid for are not repeated"
                )
            if spent + reserved + max_cost > self.usd:
                return False
            connection.execute("INSERT INTO reserved VALUES (?, ?, ?)", (name, max_cost, until))
            return True
