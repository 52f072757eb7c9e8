"""DuckDB connections with a memory limit, over the lake's views or empty, and helpers for them."""

import secrets
import tempfile
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import PythonUDFType

from warehouse import Home
from warehouse.views import connect

_MEMORY_LIMIT = "1500MB"
_BATCH_ROWS = 2_000


def duckdb_session(home: Home) -> duckdb.DuckDBPyConnection:
    """An in-memory database with a view per table; it spills to the system's temporary folder."""
    connection = connect(home, read_only=False, requests=False)
    _limit_memory(connection, _MEMORY_LIMIT)
    return connection


def open_session(memory_limit: str, threads: int) -> duckdb.DuckDBPyConnection:
    """An empty in-memory database, which spills likewise."""
    connection = duckdb.connect(":memory:", config={"threads": threads})
    _limit_memory(connection, memory_limit)
    return connection


def _limit_memory(connection: duckdb.DuckDBPyConnection, limit: str) -> None:
    # DuckDB creates this folder when it spills, and removes it when it closes.
    spill = Path(tempfile.gettempdir(), f"interleave-duckdb-{secrets.token_hex(6)}")
    connection.execute(
        f"SET enable_progress_bar = false; SET memory_limit = '{limit}'; "
        f"SET temp_directory = '{spill}'"
    )


def add_text_function(connection: duckdb.DuckDBPyConnection, function: Callable[..., str]) -> None:
    """Make a Python function of one row callable from SQL; DuckDB calls it with Arrow batches.

    It is called once for the equal rows of a batch. If an argument is NULL, so is the result.
    """

    @wraps(function)  # DuckDB derives the SQL types from the annotations
    def of_batch(*columns: pa.ChunkedArray) -> pa.Array:
        rows = [*zip(*(column.to_pylist() for column in columns), strict=True)]
        texts = {row: None if None in row else function(*row) for row in dict.fromkeys(rows)}
        return pa.array([texts[row] for row in rows], pa.string())

    connection.create_function(function.__name__, of_batch, type=PythonUDFType.ARROW)


def shard_in(shards: list[str]) -> str:
    """A condition that lets DuckDB skip the files of all other shards."""
    quoted = ", ".join("'" + shard.replace("'", "''") + "'" for shard in shards)
    return f"shard IN ({quoted})"


def count_reasons(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, int]:
    """Rows of a table by its column `reason`, without nulls."""
    sql = f"SELECT reason, count(*) FROM {table} WHERE reason IS NOT NULL GROUP BY 1 ORDER BY 1"
    return dict(connection.execute(sql).fetchall())


def query_rows(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[dict[str, Any]]:
    """The rows of a query, which need not fit in memory."""
    for batch in connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
        yield from batch.to_pylist()
