"""A DuckDB connection over the lake's views to compute in, bounded in memory.

Aggregations run inside DuckDB; what is too long for memory is handed on shard group by shard
group, as Arrow batches in a fixed order, so that a content hash does not depend on threads.
"""

import secrets
import tempfile
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import chain
from pathlib import Path

import duckdb
import pyarrow as pa

from schemas import Table
from warehouse import Home, connect

_MEMORY_LIMIT = "1500MB"
_GROUP_ROWS = 100_000


def duckdb_session(home: Home) -> duckdb.DuckDBPyConnection:
    """An in-memory database with a view per table; it spills to the system's temporary folder."""
    connection = connect(home, read_only=False, requests=False)
    connection.execute("SET enable_progress_bar = false")
    connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
    # A folder of its own, which DuckDB makes when it spills and removes when it closes.
    spill = Path(tempfile.gettempdir(), f"interleave-duckdb-{secrets.token_hex(6)}")
    connection.execute(f"SET temp_directory = '{spill}'")
    return connection


def add_text_function(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    function: Callable[..., str],
    *arguments: str,
) -> None:
    """Make a Python function of one row callable from SQL; it runs on Arrow batches.

    Args:
        arguments: SQL types. With a NULL among its arguments the result is NULL.
    """

    @wraps(function)  # DuckDB counts the parameters
    def of_batch(*columns: pa.ChunkedArray) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], pa.string())

    connection.create_function(
        name, of_batch, list(arguments), "VARCHAR", type="arrow", side_effects=False
    )


def shard_groups(
    connection: duckdb.DuckDBPyConnection, table: str, rows: int = _GROUP_ROWS
) -> list[list[str]]:
    """Shards of a table in order, in groups of about `rows` rows."""
    counts = connection.execute(
        f"SELECT shard, count(*) FROM {table} GROUP BY shard ORDER BY shard"
    ).fetchall()
    groups: list[list[str]] = []
    filled = rows
    for shard, count in counts:
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


def arrow(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """The whole answer of a query."""
    return pa.table(connection.sql(sql))


def arrow_batches(
    connection: duckdb.DuckDBPyConnection, sql: str, rows: int
) -> Iterator[pa.RecordBatch]:
    """The answer of a query, `rows` at a time."""
    return iter(connection.sql(sql).to_arrow_reader(rows))


def stream(
    table: Table,
    connection: duckdb.DuckDBPyConnection,
    groups: list[list[str]],
    rows_of: Callable[[duckdb.DuckDBPyConnection, list[str]], pa.Table],
) -> pa.RecordBatchReader:
    """Rows of `table`, computed group by group while the reader is read."""
    batches = chain.from_iterable(
        _in_schema(rows_of(connection, shards), table.arrow_schema) for shards in groups
    )
    return pa.RecordBatchReader.from_batches(table.arrow_schema, batches)


def _in_schema(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    yield from rows.select(schema.names).cast(schema).to_batches()
