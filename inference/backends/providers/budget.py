"""A budget for everything that a home pays for, kept to by all its processes together.

Before a call the most that it may cost is reserved, after it what it did cost is booked. Where even
that would exceed the budget, the run stops; where only the reservations of calls under way do, a
call waits for them. What a killed process had reserved counts as spent once its calls must have
ended: they may have been paid for.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ...engine.pausable_timeout import pause_timeout
from ...roles import BackendError
from .sqlite_file import SqliteFile

_LOOK_AGAIN_SECONDS = 0.1
_TABLES = (
    "CREATE TABLE IF NOT EXISTS spent (id INTEGER PRIMARY KEY, usd REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS reserved "
    "(name TEXT PRIMARY KEY, usd REAL NOT NULL, until REAL NOT NULL)",
    "INSERT OR IGNORE INTO spent VALUES (1, 0)",
)


@dataclass
class Reservation:
    """What a call may cost; set `cost` to what it did cost. A call that fails costs nothing."""

    most: float
    cost: float = 0.0


class Budget:
    """Money for the calls of a home.

    Args:
        path: the local file that all processes share.
        usd: what may be spent, all in all; raise it and run again to go on.
        longest_seconds: no call is under way longer than this.
    """

    def __init__(self, path: Path, usd: float, longest_seconds: float) -> None:
        self._books, self.usd, self._longest = SqliteFile(path, _TABLES), usd, longest_seconds

    def spent(self) -> float:
        """USD spent so far, without what is reserved."""
        with self._books.open() as books:
            return _sum(books, "spent")

    @asynccontextmanager
    async def reserved(
        self, most: float, name: str | None = None, seconds: float | None = None
    ) -> AsyncIterator[Reservation]:
        """Around a call that costs `most` USD at worst.

        Args:
            name: of a call that a restart takes up again, with what it had reserved.
            seconds: the call's own longest time.

        Raises:
            BackendError: that is more than is left.
        """
        name, until = name or uuid4().hex, time.time() + (seconds or self._longest)
        async with pause_timeout():
            while not self._try_to_reserve(name, most, until):
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        reservation = Reservation(most)
        try:
            yield reservation
        finally:
            self._settle(name, reservation.cost)

    def _try_to_reserve(self, name: str, most: float, until: float) -> bool:
        """False: calls under way have reserved what is left."""
        with self._books.open() as books:
            self._write_off_the_dead(books)
            books.execute("DELETE FROM reserved WHERE name = ?", (name,))
            spent, reserved = _sum(books, "spent"), _sum(books, "reserved")
            if spent + most > self.usd:
                raise BackendError(
                    f"the budget of {self.usd:g} USD is used up: {spent:.4g} USD are spent and the "
                    f"next call may cost {most:.2g}. Raise `budget.usd` in the profile and run "
                    "again: nothing that is paid for is repeated"
                )
            if spent + reserved + most > self.usd:
                return False
            books.execute("INSERT INTO reserved VALUES (?, ?, ?)", (name, most, until))
            return True

    def _settle(self, name: str, cost: float) -> None:
        with self._books.open() as books:
            books.execute("DELETE FROM reserved WHERE name = ?", (name,))
            books.execute("UPDATE spent SET usd = usd + ?", (cost,))

    def _write_off_the_dead(self, books: sqlite3.Connection) -> None:
        late = (time.time(),)
        books.execute(
            "UPDATE spent SET usd = usd + "
            "(SELECT coalesce(sum(usd), 0) FROM reserved WHERE until < ?)",
            late,
        )
        books.execute("DELETE FROM reserved WHERE until < ?", late)


def _sum(books: sqlite3.Connection, table: str) -> float:
    return float(books.execute(f"SELECT coalesce(sum(usd), 0) FROM {table}").fetchone()[0])
