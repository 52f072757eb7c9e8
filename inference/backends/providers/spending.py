"""What a home has spent on paid calls, and alerts at shares of its budget: one SQLite file.

An alert is recorded in the transaction that books the cost which reaches its share, so none is lost
by a kill. Who delivers it notes that for each channel under a lock; a budget of another size is
another period, with alerts of its own.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection

from schemas import StorageError
from warehouse import Home
from warehouse.file_lock import exclusive_lock
from warehouse.sqlite_file import SqliteFile

SPENDING_FILE = "spending.sqlite"

_CREATE_TABLES = (
    "CREATE TABLE IF NOT EXISTS spent (id INTEGER PRIMARY KEY, usd REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS reserved "
    "(name TEXT PRIMARY KEY, usd REAL NOT NULL, until REAL NOT NULL)",
    "INSERT OR IGNORE INTO spent VALUES (1, 0)",
)
_CREATE_ALERTS = (
    "CREATE TABLE alerts (usd REAL NOT NULL, share REAL NOT NULL, spent REAL NOT NULL, "
    "at REAL NOT NULL, PRIMARY KEY (usd, share))",
    "CREATE TABLE delivered (usd REAL NOT NULL, share REAL NOT NULL, channel TEXT NOT NULL, "
    "PRIMARY KEY (usd, share, channel))",
)
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
        self._file = SqliteFile(path, [_CREATE_TABLES, _CREATE_ALERTS])

    @classmethod
    def of(cls, home: Home) -> "SpendingFile":
        return cls(home.local / SPENDING_FILE)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with self._file.transaction() as connection:
            yield connection

    @property
    def exists(self) -> bool:
        """Whether anything was ever booked."""
        return self._file.path.exists()

    def read(self) -> Spending | None:
        """None: nothing was ever booked."""
        if not self.exists:
            return None
        with self.transaction() as connection:
            spent, reserved = totals(connection)
            rows = connection.execute("SELECT usd, share, spent, at FROM alerts ORDER BY at, share")
            return Spending(spent, reserved, tuple(BudgetAlert(*row) for row in rows))

    @contextmanager
    def delivering(self) -> Iterator[None]:
        """While alerts are delivered, by one process at a time.

        Raises:
            StorageError: another process delivers them.
        """
        lock = self._file.path.with_suffix(".lock")
        busy = StorageError("another process delivers the alerts of this budget")
        with exclusive_lock(lock, busy):
            yield

    def pending(self, channel: str) -> list[BudgetAlert]:
        """Alerts that a channel has not delivered, oldest first."""
        with self.transaction() as connection:
            return [BudgetAlert(*row) for row in connection.execute(_PENDING, (channel,))]

    def note_delivery(self, alert: BudgetAlert, channel: str) -> None:
        with self.transaction() as connection:
            row = (alert.usd, alert.share, channel)
            connection.execute("INSERT OR IGNORE INTO delivered VALUES (?, ?, ?)", row)


def totals(connection: Connection) -> tuple[float, float]:
    """USD that are spent and reserved."""
    spent, reserved = connection.execute(_TOTALS).fetchone()
    return spent, reserved


def record_alerts(connection: Connection, usd: float, shares: Sequence[float]) -> list[BudgetAlert]:
    """Record the shares of a budget that are reached now; returns those that are new."""
    spent, _ = totals(connection)
    reached = [BudgetAlert(usd, share, spent, time.time()) for share in shares]
    return [
        alert
        for alert in reached
        if alert.spent >= alert.share * usd
        and connection.execute(
            "INSERT OR IGNORE INTO alerts VALUES (?, ?, ?, ?)",
            (alert.usd, alert.share, alert.spent, alert.at),
        ).rowcount
    ]
