"""Where finished requests go: partitions of the lake that views show and the lineage skips.

Rows are collected and written every few seconds, a file a table, so that a busy service does not
fill the lake with small files. What a crash takes is still in the request's journal: the same
request told again costs nothing and is written then.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from ...schemas import Row, StorageError, Table
from ...schemas.generations import GENERATIONS
from ...warehouse import Home
from ...warehouse.lake import REQUESTS

_FLUSH_SECONDS = 2.0
_REQUESTS_A_PAGE = 250

_log = logging.getLogger(__name__)


class _Page:
    """A partition in the making. `dirty`: it has rows that are not in the lake yet."""

    def __init__(self) -> None:
        self.hour = _hour()
        self.partition = f"{REQUESTS}{self.hour}-{secrets.token_hex(4)}"
        self.rows: dict[Table, list[Row]] = defaultdict(list)
        self.dirty = False

    @property
    def over(self) -> bool:
        """Long enough, or of an hour that has passed."""
        return len(self.rows[GENERATIONS]) >= _REQUESTS_A_PAGE or self.hour != _hour()

    def add(self, rows: Mapping[Table, Sequence[Row]]) -> None:
        for table, added in rows.items():
            self.rows[table] += [row.model_copy(update={"shard": self.partition}) for row in added]
        self.dirty = True


class Keeper(Protocol):
    """Takes in the rows of finished requests."""

    def add(self, rows: Mapping[Table, Sequence[Row]]) -> None:
        """Take in the rows of a finished request."""

    async def flush(self) -> None:
        """Have the lake hold what is to be there."""

    async def run(self) -> None:
        """Do the same every now and then, until cancelled."""


class Gathered:
    """Rows for somebody who writes those of many requests at once."""

    def __init__(self) -> None:
        self.requests: list[Mapping[Table, Sequence[Row]]] = []

    def add(self, rows: Mapping[Table, Sequence[Row]]) -> None:
        """See `Keeper`."""
        self.requests.append(rows)

    async def flush(self) -> None:
        """Nothing: they are kept for who asked for them."""

    async def run(self) -> None:
        """Nothing, likewise."""


class Archive:
    """Rows on their way to the lake; one a process."""

    def __init__(self, home: Home) -> None:
        self._home, self._writing = home, asyncio.Lock()
        self._pages = [_Page()]

    def add(self, rows: Mapping[Table, Sequence[Row]]) -> None:
        """Take in the rows of a finished request; they are written by the next `flush`."""
        if self._pages[-1].over:
            self._pages.append(_Page())
        self._pages[-1].add(rows)

    async def flush(self) -> None:
        """Write what is new.

        Raises:
            StorageError: it could not be written; it is kept, and tried again next time.
        """
        async with self._writing:
            for page in [page for page in self._pages if page.dirty]:
                await self._write(page)
            self._pages = [page for page in self._pages[:-1] if page.dirty] + self._pages[-1:]

    async def run(self) -> None:
        """Flush every few seconds until cancelled."""
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            try:
                await self.flush()
            except StorageError as error:
                _log.warning("requests cannot be archived yet: %s", error)

    async def _write(self, page: _Page) -> None:
        page.dirty = False
        rows = {table: list(added) for table, added in page.rows.items() if added}
        try:
            await asyncio.to_thread(self._store, page.partition, rows)
        except BaseException:
            page.dirty = True
            raise

    def _store(self, partition: str, rows: Mapping[Table, Sequence[Row]]) -> None:
        for table, added in rows.items():
            self._home.lake.write(table, added, partition)


def _hour() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H")
