"""DuckDB views over the lake, one per table and those of `VIEWS`: for our connections, and in
`warehouse.duckdb`.

While a process writes a DuckDB file, no other process can open it, not even to read. So nothing
here opens `warehouse.duckdb`: our connections use a private file of views, and `refresh_views`
writes a new file and renames it over the old one.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from glob import escape
from pathlib import Path
from typing import TypeVar

import duckdb
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from schemas import TABLES, VIEWS, Table, View

from .atomic import atomic_path
from .home import Home
from .lake import REQUESTS
from .storage import first_line, storage_errors

T = TypeVar("T")


def connect(home: Home, read_only: bool = True, requests: bool = True) -> duckdb.DuckDBPyConnection:
    """A connection with a view per table, never blocked by writers.

    Args:
        read_only: False: tables can be created too, private to the connection. The lake is never
            changed through a connection.
        requests: False: without the rows of users' requests (only if not `read_only`).

    Raises:
        StorageError: the lake cannot be listed.
    """
    if not read_only:
        connection = _open(home, ":memory:")
        _create_views(connection, home, requests)
        return connection
    with tempfile.TemporaryDirectory(prefix="interleave-") as folder:
        path = Path(folder, "warehouse.duckdb")
        _write_views(path, home)
        # The open connection keeps the unlinked file alive; a crash leaves nothing behind.
        return _open(home, path, read_only=True)


def with_retries(read: Callable[[], T]) -> T:
    """What `read` makes of the lake's files; again where that fails, as a partition may have been
    replaced or removed meanwhile. Raises the last `duckdb.Error`."""
    retrying = Retrying(
        retry=retry_if_exception_type(duckdb.Error),
        wait=wait_exponential(multiplier=0.02),  # seconds, doubled after each try
        stop=stop_after_attempt(6),
        reraise=True,
    )
    return retrying(read)


def lock_to_lake(connection: duckdb.DuckDBPyConnection, home: Home) -> None:
    """Keep a connection from any file outside the lake, and from changing that."""
    folder = home.lake.storage.url()
    # Also as in the patterns of the views, where brackets are escaped.
    allowed = ", ".join(_literal(f"{name}/") for name in (folder, escape(folder)))
    connection.execute(f"SET allowed_directories = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def refresh_views(home: Home) -> None:
    """Write `warehouse.duckdb`: views with absolute paths, for any DuckDB client.

    Needed once, and again after the home was moved; the views include new partitions.
    StorageError: the home cannot be written.
    """
    for table in TABLES.values():
        home.lake.write_schema_file(table)
    with storage_errors("written", home.warehouse), atomic_path(home.warehouse) as draft:
        _write_views(draft, home, documented=True)


def _open(home: Home, path: str | Path, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(path, read_only=read_only)
    if not home.storage.is_local:
        connection.register_filesystem(home.storage.fs)
    # Partitions are replaced under the same name, so cached bytes may be stale.
    connection.execute("SET enable_external_file_cache = false")
    return connection


def _write_views(path: Path, home: Home, documented: bool = False) -> None:
    """Write a database file of views; `documented`: with comments, which other clients show."""
    with closing(_open(home, path)) as connection:
        _create_views(connection, home)
        if documented:
            connection.execute("; ".join(_comments()))


def _create_views(connection: duckdb.DuckDBPyConnection, home: Home, requests: bool = True) -> None:
    """Create a view per table, then those over them. If a table's files cannot be read, selecting
    from it raises the error, so that the other tables stay usable."""
    for table in TABLES.values():
        view = f"CREATE VIEW {table.name} AS"
        if home.lake.is_absent(table):
            connection.execute(f"{view} {_empty_select(connection, table, 'false')}")
            continue
        try:
            connection.execute(f"{view} {_files_select(table, home, requests)}")
        except duckdb.Error as error:
            problem = f"error({_literal(f'table {table.name}: {first_line(error)}')}) IS NULL"
            connection.execute(f"{view} {_empty_select(connection, table, problem)}")
    for derived in VIEWS.values():
        connection.execute(f"CREATE VIEW {derived.name} AS {derived.sql}")


def _files_select(table: Table, home: Home, requests: bool) -> str:
    columns = ", ".join(f'"{name}"' for name in table.columns)
    files = f"read_parquet({_literal(home.lake.glob(table))}, hive_partitioning = false)"
    select = f"SELECT {columns} FROM {files}"
    if not requests and "shard" in table.columns:
        select += f" WHERE NOT starts_with(shard, {_literal(REQUESTS)})"
    return select


def _empty_select(connection: duckdb.DuckDBPyConnection, table: Table, where: str) -> str:
    empty = connection.from_arrow(table.arrow_schema.empty_table())
    columns = zip(empty.columns, empty.types, strict=True)
    nulls = ", ".join(f'NULL::{column_type} AS "{name}"' for name, column_type in columns)
    return f"SELECT {nulls} WHERE {where}"


def _comments() -> Iterator[str]:
    """Statements that set the schemas' descriptions as comments, in one transaction."""
    yield "BEGIN"
    documented: tuple[Table | View, ...] = (*TABLES.values(), *VIEWS.values())
    for table in documented:
        yield f"COMMENT ON VIEW {table.name} IS {_literal(table.description)}"
        for name, info in table.columns.items():
            description = _literal(info.description or "")
            yield f'COMMENT ON COLUMN {table.name}."{name}" IS {description}'
    yield "COMMIT"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
