"""What curation reads of the lake, one group of shards after the other, and how rows come back.

A training set is made group by group, in parallel (`map_shards`). What has to be decided over all
shards is measured in a first pass, whose rows wait on disk (`Spool`). All that joins is within
a shard. Rows enter as `Lake.read` returns them, so that damaged files are errors, and leave in the
order of groups and a key, so that content hashes depend neither on threads nor on workers.
"""

import atexit
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from schemas import Table
from schemas.curation import STEPS
from schemas.trajectories import ATTEMPTS, PLANS, REVIEWS, SCORES, TRAJECTORIES
from warehouse import Home, Lake
from warehouse.partition_index import PartitionIndex

from ..core.duckdb_session import open_session
from ..core.shard_map import Result, map_shards, worker_count
from ..prompts.rounds import rounds_of_shards
from ..reviews.opinions import add_opinions, shard_shares
from .settings import CurationSettings
from .texts import add_texts

GROUP_ROWS = 25_000  # attempts that are in memory at a time
_MEMORY_MB = 250  # of DuckDB for each worker; beyond it spills
_BATCH_ROWS = 2_000
_STEPS_READ = 50_000  # rows of `steps` at a time
_CODEC = pa.ipc.IpcWriteOptions(compression="lz4")

Columns = Mapping[Table, Sequence[str]]


@dataclass(frozen=True)
class ShardedLake:
    """The shards of a home that curation may use: not those that wait for reviews, nor those of
    rounds, whose sets are made apart (`assets/rounds`).

    Args:
        steps: of these shards, in place of those of the table.
    """

    lake: Lake
    settings: CurationSettings
    shards: tuple[str, ...]
    steps: pa.Table | None = None

    @classmethod
    def of(
        cls,
        home: Home,
        settings: CurationSettings,
        shards: Sequence[str] | None = None,
        steps: pa.Table | None = None,
    ) -> "ShardedLake":
        """The shards that the lineage uses, or the given ones, or those of the given steps."""
        if steps is not None:
            shards = pc.unique(steps["shard"]).to_pylist()
        if shards is not None:
            return cls(home.lake, settings, tuple(sorted(shards)), steps)
        tables = (PLANS, TRAJECTORIES, ATTEMPTS, SCORES)
        names = {name for table in tables for name in home.lake.partitions(table)}
        names -= rounds_of_shards(home, names).keys()
        if settings.reviews and (share := settings.reviews.share):
            names -= {each.shard for each in shard_shares(home) if each.is_held_back(share)}
        return cls(home.lake, settings, tuple(sorted(names)))

    def groups(self) -> list[list[str]]:
        """The shards in order, in groups of about `GROUP_ROWS` attempts."""
        return group_shards(self.row_counts(ATTEMPTS), GROUP_ROWS)

    def row_counts(self, table: Table) -> dict[str, int]:
        """Rows of a table by shard, in order of the shards."""
        return {shard: self.lake.rows(table, shard) for shard in self.shards}

    def map(
        self,
        function: Callable[..., Result],
        groups: Sequence[list[str]],
        *arguments: Any,
        beside: Iterable[pa.Table] | None = None,
    ) -> Iterator[Result]:
        """`function(lake, settings, *arguments, shards)` of every group, in parallel.

        Args:
            beside: a last argument for each group.
        """
        # Workers only read, for which the index, an open database, is not needed.
        lake = Lake(self.lake.storage, PartitionIndex(None))
        call = partial(function, lake, self.settings, *arguments)
        each = zip(groups) if beside is None else zip(groups, beside, strict=True)
        return map_shards(lake, call, each, len(groups))

    def steps_of(self, groups: Sequence[list[str]], side: str) -> Iterator[pa.Table]:
        """Key and best iteration of every group's steps of a side: sft or rl.

        `steps` is in order of shards, so it is read once, in parts.
        """
        columns = ["shard", "trajectory_id", "step_number", "best_iteration", "split"]
        parts = (
            self.lake.stream(STEPS, columns, part_rows=_STEPS_READ)
            if self.steps is None
            else iter([self.steps.select(columns)])
        )
        rows = STEPS.arrow_schema.empty_table().select(columns)
        for shards in groups:
            while not rows.num_rows or rows["shard"][-1].as_py() <= shards[-1]:
                if (part := next(parts, None)) is None:
                    break
                rows = pa.concat_tables([rows, part.filter(pc.equal(part["split"], side))])
            count = pc.sum(pc.less_equal(rows["shard"], shards[-1])).as_py() or 0
            found, rows = rows.slice(0, count), rows.slice(count)
            known = pc.is_in(found["shard"], pa.array(shards))
            yield found.filter(known).drop_columns(["shard"])


def group_shards(counts: Mapping[str, int], rows: int) -> list[list[str]]:
    """Shards in their order, in groups of about `rows` rows by the number of rows of each."""
    groups: list[list[str]] = []
    filled = rows
    for shard, count in counts.items():
        if filled >= rows:
            groups.append([])
            filled = 0
        groups[-1].append(shard)
        filled += count
    return groups


def shard_session(
    lake: Lake,
    settings: CurationSettings,
    shards: list[str],
    columns: Columns,
    opinions: bool = False,
) -> duckdb.DuckDBPyConnection:
    """A `text_session` with some columns of some tables.

    Args:
        opinions: also with the views of `add_opinions`, without rows unless the settings use them.
    """
    connection = text_session()
    for table, names in columns.items():
        connection.register(table.name, lake.read(table, shards, names))
    pa.default_memory_pool().release_unused()
    if opinions:
        reviewed = shards if settings.uses_reviews else []
        connection.register(REVIEWS.name, lake.read(REVIEWS, reviewed))
        add_opinions(connection)
    return connection


def text_session() -> duckdb.DuckDBPyConnection:
    """An own connection to this process's database, with the macros of `texts.py`."""
    return _database().cursor()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Groups work in threads of their own, so a query has one."""
    database = open_session(f"{_MEMORY_MB * worker_count()}MB", threads=1)
    atexit.register(database.close)
    add_texts(database)
    return database


def query_batches(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    """The result of a query in small batches."""
    return connection.sql(sql).to_arrow_reader(_BATCH_ROWS)


def as_rows(table: Table, batches: pa.RecordBatchReader) -> pa.Table:
    """A result with the columns of a table."""
    return batches.read_all().select(table.arrow_schema.names).cast(table.arrow_schema)


def joined_rows(table: Table, parts: Iterable[pa.Table]) -> pa.RecordBatchReader:
    """The rows of the parts, one after the other, while the reader is read."""
    batches = chain.from_iterable(part.to_batches(_BATCH_ROWS) for part in parts)
    return pa.RecordBatchReader.from_batches(table.arrow_schema, batches)


class Spool:
    """Record batches that wait on disk, compressed, until all that they depend on is known."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = tempfile.TemporaryFile(prefix="interleave-")  # noqa: SIM115
        self._writer = pa.ipc.new_stream(self._file, schema, options=_CODEC)

    def add(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def read(self) -> pa.RecordBatchReader:
        """All of them from the first on; after this none can be added."""
        self._writer.close()
        self._file.seek(0)
        return pa.ipc.open_stream(self._file)
