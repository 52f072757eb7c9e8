"""DuckDB over the lake: a view a table, in memory for us and in `warehouse.duckdb` for others.

DuckDB lets one process write a database file and blocks everybody else meanwhile, readers too. So
nothing here ever holds `warehouse.duckdb`: our own connections live on a private file of views,
and `refresh_views` writes a new file and renames it over the old one.
"""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from schemas import TABLES, Table

from .atomic import atomic_path
from .home import Home
from .lake import REQUESTS
from .storage import first_line, storage_errors

if TYPE_CHECKING:
    import pandas as pd

_SCALARS = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN"}


def connect(home: Home, read_only: bool = True, requests: bool = True) -> duckdb.DuckDBPyConnection:
    """A connection with a view per table that no writer can block.

    Args:
        read_only: False: tables can be made as well, private to the connection; the lake itself
            is never changed through either.
        requests: False: without the rows of users' requests (for connections that are not read
            only).

    Raises:
        StorageError: the lake cannot be listed.
    """
    if not read_only:
        connection = _with_filesystem(duckdb.connect(), home)
        _create_views(connection, home, requests)
        return connection
    with tempfile.TemporaryDirectory(prefix="interleave-") as folder:
        path = Path(folder, "warehouse.duckdb")
        _write_views(path, home)
        # The open connection keeps the unlinked file; nothing is left behind, even by a crash.
        return _with_filesystem(duckdb.connect(path, read_only=True), home)


def query(sql: str, home: Home | None = None) -> "pd.DataFrame":
    """The answer of a SQL query over the lake's tables as a pandas DataFrame.

        interleave_foundry.query("SELECT category, count(*) AS n FROM prompts GROUP BY ALL")

    Args:
        home: the home to read; by default that of $INTERLEAVE_HOME.

    Raises:
        FoundryError: the query or the lake is at fault, in one line.
    """
    from .sql import run_query

    return run_query(home or Home.from_env(), sql).to_pandas()


def refresh_views(home: Home) -> None:
    """Write `warehouse.duckdb`: views with absolute paths, for any DuckDB client.

    Needed once, and again after the home was moved; new partitions show up by themselves.

    Raises:
        StorageError: the home cannot be written.
    """
    for table in TABLES.values():
        home.lake.seed(table)
    with storage_errors("written", home.warehouse), atomic_path(home.warehouse) as draft:
        _write_views(draft, home, documented=True)


def _with_filesystem(
    connection: duckdb.DuckDBPyConnection, home: Home
) -> duckdb.DuckDBPyConnection:
    """Let DuckDB read the home's remote filesystem; local paths it reads by itself."""
    if not home.storage.is_local:
        connection.register_filesystem(home.storage.fs)
    # Partitions are replaced under the same name: bytes kept from an earlier query may be stale.
    connection.execute("SET enable_external_file_cache = false")
    return connection


def _write_views(path: Path, home: Home, documented: bool = False) -> None:
    """A database file of views; `documented` with comments, as other clients show them."""
    with closing(_with_filesystem(duckdb.connect(path), home)) as connection:
        _create_views(connection, home)
        if documented:
            connection.execute("; ".join(_comments()))


def _create_views(connection: duckdb.DuckDBPyConnection, home: Home, requests: bool = True) -> None:
    for table in TABLES.values():
        _create_view(connection, table, home, requests)


def _comments() -> Iterator[str]:
    """Statements that put the schemas' descriptions on views and columns, in one transaction."""
    yield "BEGIN"
    for table in TABLES.values():
        yield f"COMMENT ON VIEW {table.name} IS {_literal(table.description)}"
        for name, info in table.columns.items():
            about = _literal(info.description or "")
            yield f'COMMENT ON COLUMN {table.name}."{name}" IS {about}'
    yield "COMMIT"


def _create_view(
    connection: duckdb.DuckDBPyConnection, table: Table, home: Home, requests: bool
) -> None:
    """A view over the files; one that is empty when there are none; one that says what is wrong
    when they cannot be read, so that the other tables stay usable."""
    if home.lake.is_absent(table):
        connection.execute(f"CREATE VIEW {table.name} AS {_typed_select(table, 'false')}")
        return
    columns = ", ".join(f'"{name}"' for name in table.columns)
    files = f"read_parquet({_literal(home.lake.glob(table))}, hive_partitioning = false)"
    if not requests and "shard" in table.columns:
        files += f" WHERE NOT starts_with(shard, {_literal(REQUESTS)})"
    try:
        connection.execute(f"CREATE VIEW {table.name} AS SELECT {columns} FROM {files}")
    except duckdb.Error as error:
        problem = f"error({_literal(f'table {table.name}: {first_line(error)}')}) IS NULL"
        connection.execute(f"CREATE VIEW {table.name} AS {_typed_select(table, problem)}")


def _typed_select(table: Table, where: str) -> str:
    nulls = ", ".join(
        f'NULL::{_type(field.type)} AS "{field.name}"' for field in table.arrow_schema
    )
    return f"SELECT {nulls} WHERE {where}"


def _type(kind: pa.DataType) -> str:
    """DuckDB's name of an Arrow type."""
    if pa.types.is_list(kind):
        return f"{_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        children = [f'"{child.name}" {_type(child.type)}' for child in kind]
        return f"STRUCT({', '.join(children)})"
    return "TIMESTAMPTZ" if pa.types.is_timestamp(kind) else _SCALARS[str(kind)]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
