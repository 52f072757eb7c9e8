"""Read-only SQL queries over the lake: `interleave sql` and `query`."""

import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from schemas import TABLES, VIEWS, FoundryError, StorageError, Table

from .home import Home
from .result_formats import Format, count_noun, render
from .sqlite_file import SqliteFile
from .storage import first_line, storage_errors
from .views import connect, lock_to_lake, with_retries

if TYPE_CHECKING:
    import pandas as pd

TIMEOUT = 300.0  # seconds
_TRANSIENT = (duckdb.IOException, duckdb.InvalidInputException)
_THREADS = min(8, os.cpu_count() or 1)
_CREATE_TABLE = "CREATE TABLE verified (file TEXT PRIMARY KEY, size INTEGER, version TEXT)"
_State = tuple[str, int, str]  # path, and the fields of `FileState`
_READ_STATEMENTS = {"SELECT", "EXPLAIN", "PRAGMA", "CALL", "MULTI"}


class SqlError(FoundryError):
    """A query that fails; the message is one line."""


def run_sql(
    home: Home,
    sql: str,
    output: Format = "table",
    out: Path | None = None,
    width: int = 120,
    other_files: bool = False,
    timeout: float | None = TIMEOUT,
) -> bytes:
    """The result of a query as `render` formats it; written to `out`, a line of text that says so.

    Arguments and errors are those of `run_query`; StorageError also: `out` cannot be written.
    """
    result = run_query(home, sql, other_files, timeout)
    data = render(result, output, width)
    if out is None:
        return data
    with storage_errors("written", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(data)
    return f"{count_noun(result.num_rows, 'row')} written to {out}\n".encode()


def query(
    sql: str, home: Home | None = None, other_files: bool = False, timeout: float | None = TIMEOUT
) -> "pd.DataFrame":
    """A SQL query over the tables of a home (default: $INTERLEAVE_HOME) as a pandas DataFrame.

        interleave_foundry.query("SELECT category, count(*) AS n FROM prompts GROUP BY ALL")

    Arguments and errors are those of `run_query`.
    """
    return run_query(home or Home.from_env(), sql, other_files, timeout).to_pandas()


def run_query(
    home: Home, sql: str, other_files: bool = False, timeout: float | None = None
) -> pa.Table:
    """The result of one read-only query; decimals become integers or floats, intervals text.

    A query that fails because a partition is replaced or removed meanwhile is tried again.

    Args:
        other_files: whether it may read files outside the lake.
        timeout: seconds after which it is stopped; None: never.

    Raises:
        SqlError: the SQL is wrong, not read-only, more than one statement or at its time limit, or
            there is no lake yet.
        SchemaMismatchError: a table it reads has a schema version that cannot be read.
        StorageError: a file it reads is damaged.
    """
    if all(home.lake.is_absent(table) for table in TABLES.values()):
        raise SqlError(f"there are no tables in {home.root} yet: `interleave run` creates them")
    try:
        return with_retries(lambda: _execute(home, sql, other_files, timeout))
    except duckdb.Error as error:
        raise SqlError(_explain(error)) from error


def verify_referenced(home: Home, sql: str) -> None:
    """Verify the files of the tables that a query names, which DuckDB does not.

    Each is read once as long as it is not changed, as `verified.sqlite` says; without that file (in
    a home that cannot be written) at every query. Of files on an object store, which verifies its
    own bytes, only the schema is checked.

    Raises:
        SchemaMismatchError, StorageError: a file is damaged, or its schema cannot be read.
    """
    tables = [TABLES[name] for name in _referenced_tables(sql)]
    if not home.lake.storage.is_local:
        for table in tables:
            home.lake.check(table)
        return
    memory = SqliteFile(home.local / "verified.sqlite", [_CREATE_TABLE], durable=False)
    known = _known_states(memory)
    changed = {
        (home.lake.file(table, partition), *state): (table, partition)
        for table in tables
        for partition, state in home.lake.files(table).items()
    }
    for state in known & changed.keys():
        del changed[state]
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda each: _verify(home, *each), changed.values()))
    if changed:
        with suppress(StorageError), memory.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO verified VALUES (?, ?, ?)", changed)


def _known_states(memory: SqliteFile) -> set[_State]:
    with suppress(StorageError), memory.transaction() as connection:
        return set(connection.execute("SELECT * FROM verified"))
    return set()


def _verify(home: Home, table: Table, partition: str) -> None:
    with suppress(FileNotFoundError):
        home.lake.verify(table, partition)


def _execute(home: Home, sql: str, other_files: bool, timeout: float | None) -> pa.Table:
    with closing(connect(home)) as connection:
        if not other_files:
            lock_to_lake(connection, home)
        try:
            _check_statement(connection, sql)
            verify_referenced(home, sql)
            with _interrupted_after(timeout, connection):
                relation = connection.sql(sql)
                if relation is None:
                    return pa.table({})
                return _without_decimals(_without_intervals(relation).to_arrow_table())
        except duckdb.InterruptException as error:
            limit = f"{timeout:g} s; --timeout sets another limit"
            raise SqlError(f"the query was stopped after {limit}") from error
        except RuntimeError as error:
            if str(error) != "Query interrupted":  # DuckDB's answer to SIGINT
                raise
            raise KeyboardInterrupt from error
        except duckdb.Error as error:
            # A changed file may be the cause; for remote files DuckDB raises a bare Error.
            if isinstance(error, _TRANSIENT) or type(error) is duckdb.Error:
                raise
            raise SqlError(_explain(error)) from error
        except UnicodeDecodeError as error:  # of DuckDB's message, which quotes the file
            tables = ", ".join(_referenced_tables(sql))
            remedy = f"delete it and materialize {tables} again"
            raise StorageError(f"a file of {tables} is damaged: {remedy}") from error


@contextmanager
def _interrupted_after(
    timeout: float | None, connection: duckdb.DuckDBPyConnection
) -> Iterator[None]:
    """Stop what the connection runs in this block after a time, with an InterruptException."""
    done = threading.Event()

    def interrupt() -> None:
        if not done.wait(timeout):
            while not done.wait(0.05):  # an interrupt between two steps of a query has no effect
                connection.interrupt()

    watch = threading.Thread(target=interrupt, daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _check_statement(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    statements = connection.extract_statements(sql)
    if not statements:
        raise SqlError("the query is empty")
    for name in (statement.type.name for statement in statements):
        if name not in _READ_STATEMENTS:
            raise SqlError(f"{name} is not allowed: queries only read; --out writes their result")
    if len(statements) > 1:
        raise SqlError(f"{len(statements)} statements instead of one: run each by itself")


def _referenced_tables(sql: str) -> list[str]:
    """Tables that a query names. A connection with views would name their files instead."""
    with closing(duckdb.connect()) as parser:
        try:
            names = parser.get_table_names(sql)
        except duckdb.Error:  # several statements, or a wrong one
            names = set(re.findall(r"\w+", sql))
    names |= {table for view in VIEWS.values() if view.name in names for table in view.tables}
    return sorted(TABLES.keys() & names)


def _without_intervals(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Intervals as text; neither Parquet nor pandas has them."""
    types = [str(column_type) for column_type in relation.types]
    if "INTERVAL" not in types:
        return relation
    casts = (f"#{n}::VARCHAR" if kind == "INTERVAL" else f"#{n}" for n, kind in enumerate(types, 1))
    columns = zip(casts, relation.columns, strict=True)
    return relation.select(*(duckdb.SQLExpression(cast).alias(name) for cast, name in columns))


def _without_decimals(result: pa.Table) -> pa.Table:
    """Decimals, such as DuckDB's sums of integers, as integers or floats; column names unique."""
    for index, field in enumerate(result.schema):
        if pa.types.is_decimal(field.type):
            number = pa.int64() if field.type.scale == 0 else pa.float64()
            result = result.set_column(index, field.name, result[index].cast(number, safe=False))
    return result.rename_columns(_unique(result.column_names))


def _unique(names: Sequence[str]) -> list[str]:
    """Names with a number added to repeated ones, as JSON and pandas need them."""
    earlier = (names[:index].count(name) for index, name in enumerate(names))
    return [f"{name}_{n}" if n else name for name, n in zip(names, earlier, strict=True)]


def _explain(error: duckdb.Error) -> str:
    """DuckDB's message in one line; for an unknown table, with the names of all tables."""
    message, _, rest = str(error).partition("\n\nLINE ")
    if message.startswith("Traceback"):
        message = first_line(error)
    message = re.sub(r"^[A-Z]\w+( \w+)? Error: ", "", " ".join(message.split()))
    if missing := re.search(r"Table with name (\S+) does not exist", message):
        return f"no table {missing[1]!r}; there are: {', '.join(TABLES)}"
    if isinstance(error, duckdb.PermissionException):
        return f"SQL: {message}; to read files outside the lake: `interleave sql --other-files`"
    if isinstance(error, duckdb.ParserException):
        return f"SQL {message}{_position(rest)}"
    return f"SQL: {message}"


def _position(rest: str) -> str:
    """Line and column, from `LINE 1: SELECT ...` and the caret below it."""
    lines = rest.splitlines()
    number, _, _ = rest.partition(":")
    if len(lines) < 2 or "^" not in lines[1]:
        return ""
    return f" (line {number}, column {lines[1].index('^') - len(f'LINE {number}: ') + 1})"
