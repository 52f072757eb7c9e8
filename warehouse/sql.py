"""What `interleave sql` does: one read-only query over the lake, explained where it fails."""

import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa

from schemas import TABLES, FoundryError

from .home import Home
from .result_formats import Format, counted, render
from .storage import first_line, storage_errors
from .views import connect

_TRIES = 5
_FIRST_PAUSE = 0.02  # seconds, doubled at every try
_READS = {"SELECT", "EXPLAIN", "PRAGMA", "CALL", "MULTI"}


class SqlError(FoundryError):
    """A query that cannot be answered, in one line."""


def run_sql(
    home: Home,
    sql: str,
    output: Format = "table",
    out: Path | None = None,
    width: int = 120,
) -> bytes:
    """Answer a query in one format; with `out` the bytes go to that file and a line says so.

    Args:
        width: columns of the terminal, for `table`.

    Raises:
        FoundryError: the query, the lake or `out` is at fault, in one line.
    """
    answer = run_query(home, sql)
    data = render(answer, output, width)
    if out is None:
        return data
    with storage_errors("written", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(data)
    return f"{counted(answer.num_rows, 'row')} written to {out}\n".encode()


def run_query(home: Home, sql: str) -> pa.Table:
    """The answer of a read-only query.

    A partition that is replaced or removed while DuckDB reads it fails the query; it is asked
    again, quietly, on what is there by then.

    Raises:
        SqlError: the SQL is wrong, or there is no lake yet.
        SchemaMismatchError: a table it reads was written by another version of its schema.
        StorageError: a file it reads is damaged.
    """
    if all(home.lake.is_absent(table) for table in TABLES.values()):
        raise SqlError(f"there are no tables in {home.root} yet: `interleave run` makes them")
    for pause in (_FIRST_PAUSE * 2**number for number in range(_TRIES)):
        try:
            return _answer(home, sql)
        except duckdb.Error as error:
            failure = error
            time.sleep(pause)
    raise SqlError(_explain(failure)) from failure


def _answer(home: Home, sql: str) -> pa.Table:
    with closing(connect(home)) as connection:
        try:
            _check_reads_only(connection, sql)
            _check_versions(home, sql)
            relation = connection.sql(sql)
            if relation is None:
                return pa.table({})
            return _plain(_readable(relation).to_arrow_table())
        except duckdb.Error as error:
            if _may_pass(error):
                raise
            raise SqlError(_explain(error)) from error


def _may_pass(error: duckdb.Error) -> bool:
    """Whether a file that changed meanwhile can be the reason; a remote one throws a bare Error."""
    reasons = (duckdb.IOException, duckdb.InvalidInputException)
    return isinstance(error, reasons) or type(error) is duckdb.Error


def _check_reads_only(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    if not kinds:
        raise SqlError("the query is empty")
    for kind in kinds:
        if kind not in _READS:
            raise SqlError(f"{kind} is not allowed: queries only read; --out writes their answer")


def _check_versions(home: Home, sql: str) -> None:
    for name in _tables_of(sql):
        home.lake.check(TABLES[name])


def _tables_of(sql: str) -> list[str]:
    """Tables a query names. Asked of a connection without views: those would be looked through."""
    with closing(duckdb.connect()) as parser:
        try:
            names = parser.get_table_names(sql)
        except duckdb.Error:  # several statements, or a wrong one
            names = set(re.findall(r"\w+", sql))
    return sorted(TABLES.keys() & names)


def _readable(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Intervals, which neither Parquet nor pandas can hold, as text."""
    kinds = [str(kind) for kind in relation.types]
    if "INTERVAL" not in kinds:
        return relation
    columns = [
        f"#{number}{'::VARCHAR' if kind == 'INTERVAL' else ''} AS {_quoted(name)}"
        for number, (name, kind) in enumerate(zip(relation.columns, kinds, strict=True), start=1)
    ]
    return relation.project(", ".join(columns))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(answer: pa.Table) -> pa.Table:
    """Decimals (DuckDB's sums of integers are) as integers or floats; column names unique."""
    for index, field in enumerate(answer.schema):
        if pa.types.is_decimal(field.type):
            kind = pa.int64() if field.type.scale == 0 else pa.float64()
            answer = answer.set_column(index, field.name, answer[index].cast(kind, safe=False))
    return answer.rename_columns(_distinct(answer.column_names))


def _distinct(names: Sequence[str]) -> list[str]:
    """Names made unique by a number, as JSON and pandas need them."""
    seen: Counter[str] = Counter()
    distinct = []
    for name in names:
        distinct.append(f"{name}_{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return distinct


def _explain(error: duckdb.Error) -> str:
    """DuckDB's message in one line, with the tables there are when it misses one."""
    message, _, rest = str(error).partition("\n\nLINE ")
    if message.startswith("Traceback"):
        message = first_line(error)
    message = re.sub(r"^[A-Z]\w+( \w+)? Error: ", "", " ".join(message.split()))
    if missing := re.search(r"Table with name (\S+) does not exist", message):
        return f"no table {missing[1]!r}; there are: {', '.join(TABLES)}"
    if isinstance(error, duckdb.ParserException):
        return f"SQL {message}{_position(rest)}"
    return f"SQL: {message}"


def _position(rest: str) -> str:
    """Line and column out of `LINE 1: SELECT ...` and the carets below it."""
    lines = rest.splitlines()
    number, _, _ = rest.partition(":")
    if len(lines) < 2 or "^" not in lines[1]:
        return ""
    return f" (line {number}, column {lines[1].index('^') - len(f'LINE {number}: ') + 1})"
