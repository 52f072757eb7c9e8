"""Writes the rows of finished requests to partitions of the lake that are not Dagster's.

Rows are buffered and written every few seconds, a file per table, so that a busy service does not
fill the lake with small files. After a crash the buffered rows are lost, but not the request's
journal: the same request again repeats no call and writes its rows.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas import Row, StorageError, Table
from schemas.generations import GENERATIONS, GenerationRow
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, PLANS, TRAJECTORIES
from warehouse import Home, Lake
from warehouse.lake import REQUESTS
from warehouse.storage import safe_name

Rows = Mapping[Table, Sequence[Row]]

TABLES = (GENERATIONS, PLANS, TRAJECTORIES, ATTEMPTS, MODEL_CALLS)
"""Tables with rows of requests."""

# Tables with content, and the column by which it is erased; the ledger of calls stays.
_ERASABLE = {
    GENERATIONS: "generation_id",
    PLANS: "plan_id",
    TRAJECTORIES: "trajectory_id",
    ATTEMPTS: "trajectory_id",
}

_FLUSH_SECONDS = 2.0
_REQUESTS_PER_PARTITION = 250

_log = logging.getLogger(__name__)


class PendingPartition:
    """A partition that still takes rows; its name is the hour and a random suffix, or its own."""

    def __init__(self, name: str | None = None) -> None:
        self._hour = _hour()
        self.partition = REQUESTS + (name or f"{self._hour}-{secrets.token_hex(4)}")
        self.rows: dict[Table, list[Any]] = defaultdict(list)
        self.dirty = False  # whether it has rows that are not in the lake yet

    @property
    def is_full(self) -> bool:
        """Whether it has enough requests, or its hour has passed."""
        too_many = len(self.rows[GENERATIONS]) >= _REQUESTS_PER_PARTITION
        return too_many or self._hour != _hour()

    def add(self, rows: Rows) -> None:
        for table, added in rows.items():
            self.rows[table] += [row.model_copy(update={"shard": self.partition}) for row in added]
        self.dirty = True

    def erase(self, generation_id: str) -> bool:
        """Remove the content of a request; whether it was here."""
        found = [row for row in self.rows[GENERATIONS] if row.generation_id == generation_id]
        for request in found:
            for table, column in _ERASABLE.items():
                value, rows = getattr(request, column), self.rows[table]
                self.rows[table] = [row for row in rows if getattr(row, column) != value]
            self.dirty = True
        return bool(found)


class LakeSink:
    """Writes the rows of finished requests to the lake; one per process.

    All but `add` raise `StorageError` when the lake cannot be read or written; rows that could not
    be written are kept for the next flush.
    """

    def __init__(self, home: Home) -> None:
        self._home, self._write_lock = home, asyncio.Lock()
        self._pending = [PendingPartition()]

    def add(self, rows: Rows, replaceable_id: str | None) -> None:
        """Take the rows of a request, which the next `flush` writes.

        One that may be resumed gives its id: its rows get their own partition, see `discard`.
        """
        if replaceable_id:
            self._pending.insert(0, PendingPartition(replaceable_id))
        elif self._pending[-1].is_full:
            self._pending.append(PendingPartition())
        self._pending[0 if replaceable_id else -1].add(rows)

    async def discard(self, generation_id: str) -> None:
        """Delete the rows that a request's earlier, unfinished run added under its id."""
        partition = REQUESTS + generation_id
        async with self._write_lock:
            self._pending = [each for each in self._pending if each.partition != partition]
            for table in TABLES:
                await asyncio.to_thread(self._home.lake.delete, table, partition)

    async def erase(self, generation_id: str) -> None:
        """Delete the content of a request with the next `flush`; its calls stay."""
        async with self._write_lock:
            if not any(partition.erase(generation_id) for partition in self._pending):
                await asyncio.to_thread(_erase_from_lake, self._home, generation_id)

    async def flush(self) -> None:
        async with self._write_lock:
            for partition in [each for each in self._pending if each.dirty]:
                await self._write(partition)
            unfinished = [each for each in self._pending[:-1] if each.dirty]
            self._pending = unfinished + self._pending[-1:]

    async def flush_periodically(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            try:
                await self.flush()
            except StorageError as error:
                _log.warning("rows of requests cannot be written yet: %s", error)

    async def _write(self, partition: PendingPartition) -> None:
        partition.dirty = False
        rows = {table: list(added) for table, added in partition.rows.items()}
        try:
            for table, added in rows.items():
                lake, name = self._home.lake, partition.partition
                await asyncio.to_thread(_replace_rows, lake, table, added, name)
        except BaseException:
            partition.dirty = True
            raise


def _erase_from_lake(home: Home, generation_id: str) -> None:
    from warehouse.sql import run_query

    if home.lake.is_absent(GENERATIONS):
        return
    name = safe_name(generation_id, "request")
    found = run_query(home, f"select * from generations where generation_id = '{name}'")
    for request in map(GenerationRow.model_validate, found.to_pylist()):
        for table, column in _ERASABLE.items():
            value = getattr(request, column)
            if value is not None:  # a request without a plan has no rows in `plans`
                rows = home.lake.read(table, [request.shard], where=pc.field(column) != value)
                _replace_rows(home.lake, table, rows, request.shard)


def _replace_rows(lake: Lake, table: Table, rows: Sequence[Row] | pa.Table, partition: str) -> None:
    if len(rows):
        lake.write(table, rows, partition)
    else:
        lake.delete(table, partition)


def _hour() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H")
