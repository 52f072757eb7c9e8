"""DuckDB views over the lake, one per table: for our connections, and in `warehouse.duckdb`.

While a process writes a DuckDB file, no other process can open it, not even to read. So nothing
here opens `warehouse.duckdb`: our connections use a private file of views, and `refresh_views`
writes a new file and renames it over the old one.
"""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa

from schemas import TABLES, Table

from .atomic import atomic_path
from .home import Home
from .lake import REQUESTS
from .storage import first_line, storage_errors

_SCALARS = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN"}


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
        connection = _with_filesystem(duckdb.connect(), home)
        _create_views(connection, home, requests)
        return connection
    with tempfile.TemporaryDirectory(prefix="interleave-") as folder:
        path = Path(folder, "warehouse.duckdb")
        _write_views(path, home)
        # The open connection keeps the unlinked file alive; a crash leaves nothing behind.
        return _with_filesystem(duckdb.connect(path, read_only=True), home)


def refresh_views(home: Home) -> None:
    """Write `warehouse.duckdb`: views with absolute paths, for any DuckDB client.

    Needed once, and again after the home was moved; the views include new partitions.

    Raises:
        StorageError: the home cannot be written.
    """
    for table in TABLES.values():
        home.lake.write_schema_file(table)
    with storage_errors("written", home.warehouse), atomic_path(home.warehouse) as draft:
        _write_views(draft, home, documented=True)


def _with_filesystem(
    connection: duckdb.DuckDBPyConnection, home: Home
) -> duckdb.DuckDBPyConnection:
    """Give DuckDB access to the home's file system, if it is remote."""
    if not home.storage.is_local:
        connection.register_filesystem(home.storage.fs)
    # Partitions are replaced under the same name, so cached bytes may be stale.
    connection.execute("SET enable_external_file_cache = false")
    return connection


def _write_views(path: Path, home: Home, documented: bool = False) -> None:
    """Write a database file of views; `documented`: with comments, which other clients show."""
    with closing(_with_filesystem(duckdb.connect(path), home)) as connection:
        _create_views(connection, home)
        if documented:
            connection.execute("; ".join(_comments()))


def _create_views(connection: duckdb.DuckDBPyConnection, home: Home, requests: bool = True) -> None:
    for table in TABLES.values():
        _create_view(connection, table, home, requests)


def _comments() -> Iterator[str]:
    """Statements that set the schemas' descriptions as comments, in one transaction."""
    yield "BEGIN"
    for table in TABLES.values():
        yield f"COMMENT ON VIEW {table.name} IS {_literal(table.description)}"
        for name, info in table.columns.items():
            description = _literal(info.description or "")
            yield f'COMMENT ON COLUMN {table.name}."{name}" IS {description}'
    yield "COMMIT"


def _create_view(
    connection: duckdb.DuckDBPyConnection, table: Table, home: Home, requests: bool
) -> None:
    """Create a view over the files. Without files it is empty; if they cannot be read, selecting
    from it raises the error, so that the other tables stay usable."""
    if home.lake.is_absent(table):
        connection.execute(f"CREATE VIEW {table.name} AS {_typed_select(table, 'false')}")
        return
    columns = ", ".join(_column(table, name) for name in table.columns)
    options = f"hive_partitioning = false, union_by_name = {bool(table.renamed)}"
    files = f"read_parquet({_literal(home.lake.glob(table))}, {options})"
    if not requests and "shard" in table.columns:
        files += f" WHERE NOT starts_with(shard, {_literal(REQUESTS)})"
    try:
        connection.execute(f"CREATE VIEW {table.name} AS SELECT {columns} FROM {files}")
    except duckdb.Error as error:
        problem = f"error({_literal(f'table {table.name}: {first_line(error)}')}) IS NULL"
        connection.execute(f"CREATE VIEW {table.name} AS {_typed_select(table, problem)}")


def _column(table: Table, name: str) -> str:
    """A column of the view; of a renamed one, old and new files may be there in any mixture."""
    old_names = [old for old, new in table.renamed if new == name]
    if not old_names:
        return f'"{name}"'
    names = ", ".join(map(_literal, (name, *old_names)))
    return f'coalesce(*COLUMNS(lambda stored: stored IN ({names}))) AS "{name}"'


def _typed_select(table: Table, where: str) -> str:
    nulls = ", ".join(
        f'NULL::{_duckdb_type(field.type)} AS "{field.name}"' for field in table.arrow_schema
    )
    return f"SELECT {nulls} WHERE {where}"


def _duckdb_type(arrow_type: pa.DataType) -> str:
    """DuckDB's name of an Arrow type."""
    if pa.types.is_list(arrow_type):
        return f"{_duckdb_type(arrow_type.value_type)}[]"
    if pa.types.is_struct(arrow_type):
        children = [f'"{child.name}" {_duckdb_type(child.type)}' for child in arrow_type]
        return f"STRUCT({', '.join(children)})"
    return "TIMESTAMPTZ" if pa.types.is_timestamp(arrow_type) else _SCALARS[str(arrow_type)]


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
