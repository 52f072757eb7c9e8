"""A DuckDB connection over the lake's views, with a memory limit, and helpers for its results.

Aggregations run inside DuckDB. Results too large for memory are computed for one group of shards
after the other, as Arrow batches in a fixed order, so that content hashes do not depend on threads.
"""

import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from schemas import Table
from warehouse import Home
from warehouse.views import connect

from ..reviews.opinions import add_opinions, review_shares
from .settings import CurationSettings

_MEMORY_LIMIT = "1500MB"
_GROUP_ROWS = 100_000
_BATCH_ROWS = 2_000
_HELD_BACK = ("plans", "trajectories", "attempts", "scores")  # tables without such shards


def duckdb_session(home: Home) -> duckdb.DuckDBPyConnection:
    """An in-memory database with a view per table; it spills to the system's temporary folder."""
    connection = connect(home, read_only=False, requests=False)
    # DuckDB creates this folder when it spills, and removes it when it closes.
    spill = Path(tempfile.gettempdir(), f"interleave-duckdb-{secrets.token_hex(6)}")
    connection.execute(
        f"SET enable_progress_bar = false; SET memory_limit = '{_MEMORY_LIMIT}'; "
        f"SET temp_directory = '{spill}'"
    )
    return connection


def curation_session(home: Home, settings: CurationSettings) -> duckdb.DuckDBPyConnection:
    """A session without the shards that wait for reviews, and with people's opinions as views.

    The views of `add_opinions` are empty unless the settings use them.
    """
    connection = duckdb_session(home)
    add_opinions(connection, settings.uses_reviews)
    share = settings.reviews.share if settings.reviews else 0.0
    shares = review_shares(connection) if share else []
    if waiting := [each.shard for each in shares if each.is_held_back(share)]:
        for table in _HELD_BACK:
            connection.execute(
                f"CREATE TEMP VIEW {table} AS SELECT * FROM memory.main.{table} "
                f"WHERE NOT {shard_in(waiting)}"
            )
    return connection


def add_text_function(connection: duckdb.DuckDBPyConnection, function: Callable[..., str]) -> None:
    """Make a Python function of one row callable from SQL; DuckDB calls it with Arrow batches.

    If an argument is NULL, so is the result.
    """

    @wraps(function)  # DuckDB derives the SQL types from the annotations
    def of_batch(*columns: pa.ChunkedArray) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], pa.string())

    connection.create_function(function.__name__, of_batch, type=PythonUDFType.ARROW)


def shard_groups(
    connection: duckdb.DuckDBPyConnection, table: str, rows: int = _GROUP_ROWS
) -> list[list[str]]:
    """Shards of a table in order, in groups of about `rows` rows."""
    sql = f"SELECT shard, count(*) FROM {table} GROUP BY shard ORDER BY shard"
    groups: list[list[str]] = []
    filled = rows
    for shard, count in connection.execute(sql).fetchall():
        if filled >= rows:
            groups.append([])
            filled = 0
        groups[-1].append(shard)
        filled += count
    return groups


def shard_in(shards: list[str], column: str = "shard") -> str:
    """A condition that lets DuckDB skip the files of all other shards."""
    quoted = ", ".join("'" + shard.replace("'", "''") + "'" for shard in shards)
    return f"{column} IN ({quoted})"


def count_reasons(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, int]:
    """Rows of a table by its column `reason`, without nulls."""
    sql = f"SELECT reason, count(*) FROM {table} WHERE reason IS NOT NULL GROUP BY 1 ORDER BY 1"
    return dict(connection.execute(sql).fetchall())


def query_rows(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[dict[str, Any]]:
    """The rows of a query, which need not fit in memory."""
    for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
        yield from batch.to_pylist()


def stream_groups(
    table: Table,
    groups: list[list[str]],
    rows_of: Callable[[list[str]], pa.Table],
    without: Sequence[str] = (),
) -> pa.RecordBatchReader:
    """Rows of `table`, computed group by group while the reader is read.

    `without`: columns of `Table.added` that are left out, see `Lake.write`.
    """
    schema = pa.schema([field for field in table.arrow_schema if field.name not in without])
    tables = (rows_of(shards).select(schema.names).cast(schema) for shards in groups)
    return pa.RecordBatchReader.from_batches(
        schema, (batch for each in tables for batch in each.to_batches())
    )
