"""A budget for all paid calls of a home, shared by its processes: one SQLite file.

Before a call its maximum cost is reserved, afterwards the actual cost is recorded. A call that
would exceed the budget stops the run; one that would exceed it only together with reservations of
calls under way waits for these. Reservations of a killed process count as spent once its calls
must have ended: they may have been paid for.

An alert at a share of the budget is recorded in the transaction that books the cost which reaches
it, so none is lost by a kill. Who delivers it notes that for each channel under a lock; a budget of
another size is another period, with alerts of its own.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from uuid import uuid4

from schemas import StorageError
from warehouse import Home
from warehouse.file_lock import exclusive_lock
from warehouse.sqlite_file import SqliteFile

from ...calls.retry import pause_timeout
from ...roles import BackendError

SPENDING_FILE = "spending.sqlite"

_CREATE_TABLES = (
    "CREATE TABLE spent (id INTEGER PRIMARY KEY, usd REAL NOT NULL)",
    "CREATE TABLE reserved (name TEXT PRIMARY KEY, usd REAL NOT NULL, until REAL NOT NULL)",
    "INSERT INTO spent VALUES (1, 0)",
    "CREATE TABLE alerts (usd REAL NOT NULL, share REAL NOT NULL, spent REAL NOT NULL, "
    "at REAL NOT NULL, PRIMARY KEY (usd, share))",
    "CREATE TABLE delivered (usd REAL NOT NULL, share REAL NOT NULL, channel TEXT NOT NULL, "
    "PRIMARY KEY (usd, share, channel))",
)
_ADD_ALERT = "INSERT OR IGNORE INTO alerts VALUES (?, ?, ?, ?)"
_TOTALS = "SELECT (SELECT usd FROM spent), (SELECT coalesce(sum(usd), 0) FROM reserved)"
_PENDING = """\
SELECT usd, share, spent, at FROM alerts WHERE NOT EXISTS (
    SELECT 1 FROM delivered
    WHERE delivered.usd = alerts.usd AND delivered.share = alerts.share AND channel = ?
) ORDER BY at, share"""


@dataclass(frozen=True)
class BudgetAlert:
    """A share of a budget of `usd` that was reached with `spent` USD, at a time (Unix)."""

    usd: float
    share: float
    spent: float
    at: float

    @property
    def line(self) -> str:
        when = datetime.fromtimestamp(self.at, UTC)
        return (
            f"{self.share:.0%} of the budget is spent: {self.spent:,.2f} of {self.usd:,.2f} USD "
            f"({when:%Y-%m-%d %H:%M} UTC)"
        )


@dataclass(frozen=True)
class Spending:
    """USD that are spent, and those that calls under way may cost at most."""

    spent: float
    reserved: float
    alerts: tuple[BudgetAlert, ...]


class SpendingFile:
    """The file of a home; all processes share it, and every use is a transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SqliteFile(path, _CREATE_TABLES)

    @classmethod
    def of(cls, home: Home) -> "SpendingFile":
        return cls(home.local / SPENDING_FILE)

    def transaction(self) -> AbstractContextManager[Connection]:
        return self._file.transaction()

    def read(self) -> Spending | None:
        """None: nothing was ever booked."""
        if not self.path.exists():
            return None
        with self.transaction() as connection:
            spent, reserved = connection.execute(_TOTALS).fetchone()
            rows = connection.execute("SELECT usd, share, spent, at FROM alerts ORDER BY at, share")
            return Spending(spent, reserved, tuple(BudgetAlert(*row) for row in rows))

    def delivering(self) -> AbstractContextManager[None]:
        """While alerts are delivered; raises StorageError where another process delivers them."""
        busy = StorageError("another process delivers the alerts of this budget")
        return exclusive_lock(self.path.with_suffix(".lock"), busy)

    def pending(self, channel: str) -> list[BudgetAlert]:
        """Alerts that a channel has not delivered, oldest first."""
        with self.transaction() as connection:
            return [BudgetAlert(*row) for row in connection.execute(_PENDING, (channel,))]

    def note_delivery(self, alert: BudgetAlert, channel: str) -> None:
        with self.transaction() as connection:
            row = (alert.usd, alert.share, channel)
            connection.execute("INSERT OR IGNORE INTO delivered VALUES (?, ?, ?)", row)


_POLL_SECONDS = 0.1
_SPEND_EXPIRED = (
    "UPDATE spent SET usd = usd + (SELECT coalesce(sum(usd), 0) FROM reserved WHERE until < ?)"
)

_log = logging.getLogger(__name__)


@dataclass
class Reservation:
    """A call under way; set `cost` to what it cost in USD (0 for a failed call)."""

    cost: float = 0.0


class Budget(SpendingFile):
    """`usd` for the calls of a home, of which none takes longer than `max_call_seconds`.

    `path`: the local SQLite file that all processes share. `alert_at`: shares at which an alert is
    recorded and logged, by the process that reaches them.
    """

    def __init__(
        self, path: Path, usd: float, max_call_seconds: float, alert_at: Sequence[float] = ()
    ) -> None:
        super().__init__(path)
        self.usd = usd
        self._max_call_seconds, self._alert_at = max_call_seconds, alert_at

    @asynccontextmanager
    async def reserve(
        self, max_cost: float, name: str | None = None, seconds: float | None = None
    ) -> AsyncIterator[Reservation]:
        """Around a call of at most `max_cost` USD and, if not the usual time, `seconds`.

        A restarted run resumes a call with a `name`, and its reservation; until then a cancelled
        one, which goes on at the provider, stays reserved. Raises BackendError where the rest of
        the budget is too small.
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
        new = []
        with self.transaction() as connection:
            yield connection
            spent, _ = connection.execute(_TOTALS).fetchone()
            for share in (each for each in self._alert_at if spent >= each * self.usd):
                alert = BudgetAlert(self.usd, share, spent, time.time())
                row = (alert.usd, alert.share, alert.spent, alert.at)
                if connection.execute(_ADD_ALERT, row).rowcount:
                    new.append(alert)
        for alert in new:
            _log.warning(alert.line)

    def _try_reserve(self, name: str, max_cost: float, until: float) -> bool:
        """False: the rest of the budget is reserved by calls under way."""
        with self._booking() as connection:
            now = (time.time(),)
            connection.execute(_SPEND_EXPIRED, now)
            connection.execute("DELETE FROM reserved WHERE until < ?", now)
            connection.execute("DELETE FROM reserved WHERE name = ?", (name,))
            spent, reserved = connection.execute(_TOTALS).fetchone()
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
