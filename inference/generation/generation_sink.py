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

import pyarrow as pa
import pyarrow.compute as pc

from schemas import Row, StorageError, Table
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, PLANS, TRAJECTORIES
from warehouse import Home, Lake
from warehouse.lake import REQUESTS
from warehouse.storage import safe_name

TOLD = (GENERATIONS, PLANS, TRAJECTORIES, ATTEMPTS, MODEL_CALLS)
"""Tables with rows of requests."""

# Where what was said and drawn is, and what names it; the ledger says only what was spent.
_ERASABLE = {
    GENERATIONS: "generation_id",
    PLANS: "plan_id",
    TRAJECTORIES: "trajectory_id",
    ATTEMPTS: "trajectory_id",
}

_FLUSH_SECONDS = 2.0
_REQUESTS_A_PAGE = 250

_log = logging.getLogger(__name__)


class PendingPartition:
    """A partition in the making. `dirty`: it has rows that are not in the lake yet."""

    def __init__(self, name: str | None = None) -> None:
        self.hour = _hour()
        self.partition = REQUESTS + (name or f"{self.hour}-{secrets.token_hex(4)}")
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

    def drop(self, told: GenerationRow) -> None:
        for table, column in _ERASABLE.items():
            gone = getattr(told, column)
            self.rows[table] = [row for row in self.rows[table] if getattr(row, column) != gone]
        self.dirty = True


class GenerationSink(Protocol):
    """Takes in the rows of finished requests."""

    def add(self, rows: Mapping[Table, Sequence[Row]], own: str | None = None) -> None:
        """Take in the rows of a request; under a name of its `own` if it may be told again."""

    async def forget(self, own: str) -> None:
        """Forget the rows under a request's own name: it is told again."""

    async def erase(self, generation_id: str) -> None:
        """Take out what a request said and was told, at the next `flush`; what it cost stays."""

    async def flush(self) -> None:
        """Have the lake hold what is to be there."""

    async def run(self) -> None:
        """Do the same every now and then, until cancelled."""


class BufferSink:
    """Rows for somebody who writes those of many requests at once."""

    def __init__(self) -> None:
        self.requests: list[Mapping[Table, Sequence[Row]]] = []

    def add(self, rows: Mapping[Table, Sequence[Row]], own: str | None = None) -> None:
        """See `GenerationSink`."""
        self.requests.append(rows)

    async def forget(self, own: str) -> None:
        """Nothing: who writes them replaces earlier ones."""

    async def erase(self, generation_id: str) -> None:
        """Nothing: who writes them takes out what is not asked for any more."""

    async def flush(self) -> None:
        """Nothing: they are kept for who asked for them."""

    async def run(self) -> None:
        """Nothing, likewise."""


class LakeSink:
    """Rows on their way to the lake; one a process."""

    def __init__(self, home: Home) -> None:
        self._home, self._writing = home, asyncio.Lock()
        self._pages = [PendingPartition()]

    def add(self, rows: Mapping[Table, Sequence[Row]], own: str | None = None) -> None:
        """See `GenerationSink`; what is taken in is written by the next `flush`."""
        if own:
            self._pages.insert(0, PendingPartition(own))
            self._pages[0].add(rows)
            return
        if self._pages[-1].over:
            self._pages.append(PendingPartition())
        self._pages[-1].add(rows)

    async def forget(self, own: str) -> None:
        """See `GenerationSink`.

        Raises:
            StorageError: they could not be deleted.
        """
        partition = REQUESTS + own
        async with self._writing:
            self._pages = [page for page in self._pages if page.partition != partition]
            for table in TOLD:
                await asyncio.to_thread(self._home.lake.delete, table, partition)

    async def erase(self, generation_id: str) -> None:
        """See `GenerationSink`.

        Raises:
            StorageError: the lake cannot be read or written.
        """
        async with self._writing:
            if told := self._waiting(generation_id):
                page, row = told
                page.drop(row)
            else:
                await asyncio.to_thread(_erase, self._home, generation_id)

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

    def _waiting(self, generation_id: str) -> tuple[PendingPartition, GenerationRow] | None:
        """A request whose page is not over, and its page."""
        for page in self._pages:
            for row in page.rows[GENERATIONS]:
                if isinstance(row, GenerationRow) and row.generation_id == generation_id:
                    return page, row
        return None

    async def _write(self, page: PendingPartition) -> None:
        page.dirty = False
        rows = {table: list(added) for table, added in page.rows.items()}
        try:
            await asyncio.to_thread(self._store, page.partition, rows)
        except BaseException:
            page.dirty = True
            raise

    def _store(self, partition: str, rows: Mapping[Table, Sequence[Row]]) -> None:
        for table, added in rows.items():
            _put(self._home.lake, table, added, partition)


def _erase(home: Home, generation_id: str) -> None:
    """Take a request out of the partition that it is in."""
    from warehouse.sql import run_query

    if home.lake.is_absent(GENERATIONS):
        return
    name = safe_name(generation_id, "request")
    found = run_query(home, f"select * from generations where generation_id = '{name}'")
    for told in map(GenerationRow.model_validate, found.to_pylist()):
        for table, column in _ERASABLE.items():
            gone = getattr(told, column)
            if gone is not None:  # what had no plan has no rows there
                rows = home.lake.read(table, [told.shard], where=pc.field(column) != gone)
                _put(home.lake, table, rows, told.shard)


def _put(lake: Lake, table: Table, rows: Sequence[Row] | pa.Table, partition: str) -> None:
    if len(rows):
        lake.write(table, rows, partition)
    else:
        lake.delete(table, partition)


def _hour() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H")
