"""Writes the rows of finished requests to partitions of the lake that are not Dagster's.

Rows are buffered and written every few seconds, a file per table, so that a busy service does not
fill the lake with small files. Until then they are in the `RequestLog`, from which the next process
takes them after a kill.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas import Row, StorageError, Table
from schemas.generations import GENERATIONS
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, PLANS, TRAJECTORIES, ModelCallRow
from warehouse import Home, Lake
from warehouse.journal import Journal
from warehouse.lake import REQUESTS
from warehouse.storage import safe_name

from ..calls.worker_pool import finish_when_cancelled
from .requests import TABLES, Entry, RequestLog, Rows, remove_file

# Tables with content, and the column by which it is deleted; the ledger of calls has none.
_CONTENT = {
    PLANS: "plan_id",
    TRAJECTORIES: "trajectory_id",
    ATTEMPTS: "trajectory_id",
    GENERATIONS: "generation_id",  # last: its row names the others
}

_FLUSH_SECONDS = 2.0
_REQUESTS_PER_PARTITION = 250

_log = logging.getLogger(__name__)


class PendingPartition:
    """A partition that still takes rows, each key once.

    Its name is the hour and a random suffix, or its own.
    """

    def __init__(self, name: str | None = None) -> None:
        self._hour = _hour()
        self.partition = REQUESTS + (name or f"{self._hour}-{secrets.token_hex(4)}")
        self._rows: dict[Table, dict[Any, Any]] = defaultdict(dict)
        self.dirty = False  # whether it has rows that are not in the lake yet

    @classmethod
    def stored(cls, lake: Lake, partition: str) -> "PendingPartition":
        """With the rows that the lake has of it."""
        pending = cls(partition.removeprefix(REQUESTS))
        for table in TABLES:
            stored = lake.read(table, [partition]).to_pylist()
            pending.add({table: list(map(table.row.model_validate, stored))})
        return pending

    @property
    def is_full(self) -> bool:
        """Whether it has enough requests, or its hour has passed."""
        too_many = len(self._rows[GENERATIONS]) >= _REQUESTS_PER_PARTITION
        return too_many or self._hour != _hour()

    def add(self, rows: Rows) -> None:
        for table, added in rows.items():
            for row in added:
                self._rows[table][_key(table, row)] = row.model_copy(
                    update={"shard": self.partition}
                )
        self.dirty = True

    def rows(self) -> dict[Table, list[Row]]:
        """The rows of every table, also where there are none."""
        return {table: list(self._rows[table].values()) for table in TABLES}

    def remove(self, generation_id: str, call_ids: Collection[str] = ()) -> bool:
        """Remove the content of a request, and calls; whether it was here."""
        request = self._rows[GENERATIONS].get((generation_id,))
        if request is None:
            return False
        for table, column in _CONTENT.items():
            value = getattr(request, column)
            self._rows[table] = {
                key: row for key, row in self._rows[table].items() if getattr(row, column) != value
            }
        for call_id in call_ids:
            self._rows[MODEL_CALLS].pop((call_id,), None)
        self.dirty = True
        return True


class LakeSink:
    """Writes the rows of finished requests to the lake; one per process.

    Methods raise `StorageError` when the lake or the log cannot be read or written; rows that could
    not be written are kept for the next flush.

    Attributes:
        problem: why the last flush failed; None: it did not.
    """

    def __init__(self, home: Home) -> None:
        self._home, self._write_lock = home, asyncio.Lock()
        self._pending = [PendingPartition()]
        self._log, self._rotated = RequestLog(home), list[Journal]()
        self.problem: str | None = None

    def note_unfinished(self, entry: Entry) -> None:
        """A request is about to wait or to run; after a kill, `recover` gets its entry."""
        self._log.note_unfinished(entry)

    def add(self, rows: Rows, generation_id: str, resumable: bool) -> None:
        """Take the rows of a request, which the next `flush` writes.

        Those of one that may be resumed get their own partition, see `discard`.
        """
        if resumable:
            self._pending.insert(0, PendingPartition(generation_id))
        elif self._pending[-1].is_full:
            self._pending.append(PendingPartition())
        pending = self._pending[0 if resumable else -1]
        pending.add(rows)
        self._log.end(generation_id, pending.partition, rows)

    async def discard(self, generation_id: str, call_ids: Collection[str]) -> None:
        """Delete all rows of a request's earlier run, before it runs again under its id."""
        async with self._write_lock:
            self._log.remove(generation_id, call_ids)
            own = REQUESTS + generation_id
            self._pending = [each for each in self._pending if each.partition != own]
            for partition in self._pending:
                partition.remove(generation_id, call_ids)
            await _in_thread(_remove_from_lake, self._home, {generation_id: call_ids})

    async def erase(self, generation_id: str) -> None:
        """Delete the content of a request with the next `flush`; its calls stay."""
        async with self._write_lock:
            self._log.remove(generation_id, ())
            if not any(each.remove(generation_id) for each in self._pending):
                await _in_thread(_remove_from_lake, self._home, {generation_id: ()})

    async def flush(self) -> None:
        async with self._write_lock:
            if rotated := self._log.rotate():
                self._rotated.append(rotated)
            for partition in [each for each in self._pending if each.dirty]:
                await self._write(partition)
            unfinished = [each for each in self._pending[:-1] if each.dirty]
            self._pending = unfinished + self._pending[-1:]
            while self._rotated:  # the oldest first: a later one may end what it began
                await _in_thread(remove_file, self._rotated.pop(0))

    async def flush_periodically(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            try:
                await self.flush()
            except StorageError as error:
                if self.problem is None:
                    _log.error("rows of requests cannot be written yet: %s", error)
                self.problem = str(error)
            else:
                if self.problem is not None:
                    _log.warning("rows of requests are written again")
                self.problem = None

    async def close(self) -> None:
        await self.flush()
        self._log.close()

    def recover(self, interrupted: Callable[[Entry], Rows]) -> int:
        """Write the rows that killed processes left in their logs; how many were interrupted.

        All requests at once, since there may be thousands and their clients wait.

        Args:
            interrupted: the rows of a request that waited or ran.
        """
        abandoned = self._log.abandoned()
        partitions: dict[str, PendingPartition] = {}  # only with the rows of the logs
        unfinished: dict[str, Entry] = {}
        removed: dict[str, set[str]] = defaultdict(set)  # request -> calls of its earlier runs

        def remove(generation_id: str, call_ids: Collection[str]) -> None:
            for partition in partitions.values():
                partition.remove(generation_id, call_ids)
            removed[generation_id].update(call_ids)

        for entry in (entry for _, entries in abandoned for entry in entries):
            match entry.kind:
                case "accepted" | "started":
                    unfinished[entry.generation_id] = entry
                case "ended":
                    unfinished.pop(entry.generation_id, None)
                    name = entry.content["partition"]
                    own = PendingPartition(name.removeprefix(REQUESTS))
                    partitions.setdefault(name, own).add(entry.rows())
                case "removed":
                    remove(entry.generation_id, entry.content["calls"])
        last = PendingPartition()
        for generation_id, entry in unfinished.items():
            rows = interrupted(entry)
            calls = [row.call_id for row in rows[MODEL_CALLS] if isinstance(row, ModelCallRow)]
            remove(generation_id, calls)
            last.add(rows)
        _remove_from_lake(self._home, removed)
        for partition in [*partitions.values(), *([last] if unfinished else [])]:
            stored = PendingPartition.stored(self._home.lake, partition.partition)
            stored.add(partition.rows())
            self._replace(stored.partition, stored.rows())
        for file, _ in abandoned:
            remove_file(file)
        return len(unfinished)

    async def _write(self, partition: PendingPartition) -> None:
        partition.dirty = False
        try:
            await _in_thread(self._replace, partition.partition, partition.rows())
        except BaseException:
            partition.dirty = True
            raise

    def _replace(self, partition: str, rows: Rows) -> None:
        for table, added in rows.items():
            _replace_rows(self._home.lake, table, added, partition)


async def _in_thread(work: Callable[..., None], *args: object) -> None:
    """Run `work` in a thread, to its end also when cancelled: two that write lose rows."""
    await finish_when_cancelled(asyncio.to_thread(work, *args))


def _key(table: Table, row: Row) -> tuple[object, ...]:
    return tuple(getattr(row, column) for column in table.key)


def _remove_from_lake(home: Home, removed: Mapping[str, Collection[str]]) -> None:
    """Delete calls, then the content of requests; after a kill, do it again.

    `removed`: request -> ids of its calls to delete.
    """
    condition = pc.field("generation_id").isin(list(removed))
    for shard in _shards_of(home, removed):
        requests = home.lake.read(GENERATIONS, [shard], where=condition).to_pylist()
        calls = [call_id for each in requests for call_id in removed[each["generation_id"]]]
        _remove_rows(home.lake, MODEL_CALLS, shard, "call_id", calls)
        for table, column in _CONTENT.items():
            # One without a plan has no such rows.
            values = [each[column] for each in requests if each[column] is not None]
            _remove_rows(home.lake, table, shard, column, values)


def _shards_of(home: Home, generation_ids: Collection[str]) -> list[str]:
    """The partitions that have rows of some requests."""
    from warehouse.sql import run_query

    if not generation_ids or home.lake.is_absent(GENERATIONS):
        return []
    names = [safe_name(each, "request") for each in generation_ids]
    if len(names) == 1 and home.lake.exists(GENERATIONS, own := REQUESTS + names[0]):
        return [own]
    listed = ", ".join(f"'{name}'" for name in names)
    query = f"select distinct shard from generations where generation_id in ({listed})"
    return [str(row["shard"]) for row in run_query(home, query).to_pylist()]


def _remove_rows(
    lake: Lake, table: Table, shard: str, column: str, values: Sequence[object]
) -> None:
    if values:
        others = ~pc.field(column).isin(values)
        _replace_rows(lake, table, lake.read(table, [shard], where=others), shard)


def _replace_rows(lake: Lake, table: Table, rows: Sequence[Row] | pa.Table, partition: str) -> None:
    if len(rows):
        lake.write(table, rows, partition)
    else:
        lake.delete(table, partition)


def _hour() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H")
