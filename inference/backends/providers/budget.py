"""A budget for all paid calls of a home, shared by its processes.

Before a call its maximum cost is reserved, afterwards the actual cost is recorded. A call that
would exceed the budget stops the run; one that would exceed it only together with reservations of
calls under way waits for these. Reservations of a killed process count as spent once its calls
must have ended: they may have been paid for.
"""

import asyncio
import sqlite3
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


@dataclass
class Reservation:
    """A call under way; set `cost` to what it cost in USD (0 for a failed call)."""

    cost: float = 0.0


class Budget:
    """Money for the calls of a home.

    Args:
        path: the local SQLite file that all processes share.
        usd: total limit; raise it and run again to continue.
        max_call_seconds: no call takes longer than this.
    """

    def __init__(self, path: Path, usd: float, max_call_seconds: float) -> None:
        self._file, self.usd = SqliteFile(path, [_CREATE_TABLES]), usd
        self._max_call_seconds = max_call_seconds

    def spent(self) -> float:
        """USD spent so far, without what is reserved."""
        with self._file.transaction() as connection:
            return _sum(connection, "spent")

    @asynccontextmanager
    async def reserve(
        self, max_cost: float, name: str | None = None, seconds: float | None = None
    ) -> AsyncIterator[Reservation]:
        """Around a call that costs at most `max_cost` USD.

        Args:
            name: of a call that a restarted run resumes, with its reservation.
            seconds: the longest time of this call.

        Raises:
            BackendError: the rest of the budget is too small.
        """
        name, until = name or uuid4().hex, time.time() + (seconds or self._max_call_seconds)
        reservation = Reservation()
        try:
            async with pause_timeout():
                while not self._try_reserve(name, max_cost, until):
                    await asyncio.sleep(_POLL_SECONDS)
            yield reservation
        finally:
            with self._file.transaction() as connection:
                connection.execute("DELETE FROM reserved WHERE name = ?", (name,))
                connection.execute("UPDATE spent SET usd = usd + ?", (reservation.cost,))

    def _try_reserve(self, name: str, max_cost: float, until: float) -> bool:
        """False: the rest of the budget is reserved by calls under way."""
        with self._file.transaction() as connection:
            _expire_reservations(connection)
            connection.execute("DELETE FROM reserved WHERE name = ?", (name,))
            spent, reserved = _sum(connection, "spent"), _sum(connection, "reserved")
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


def _expire_reservations(connection: sqlite3.Connection) -> None:
    now = (time.time(),)
    connection.execute(
        "UPDATE spent SET usd = usd + (SELECT coalesce(sum(usd), 0) FROM reserved WHERE until < ?)",
        now,
    )
    connection.execute("DELETE FROM reserved WHERE until < ?", now)


def _sum(connection: sqlite3.Connection, table: str) -> float:
    return float(connection.execute(f"SELECT coalesce(sum(usd), 0) FROM {table}").fetchone()[0])
