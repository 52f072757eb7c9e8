"""Query results as bytes: a text table, CSV, JSON or Parquet."""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from rich.table import Table

Format = Literal["table", "csv", "json", "parquet"]

_MAX_ROWS = 50
_NARROW = 24
_GAP = 3  # between two columns


def render(result: pa.Table, output: Format, width: int = 120) -> bytes:
    """A query result as bytes: text in UTF-8, or a Parquet file.

    Args:
        width: columns of the terminal, for `table`.
    """
    if output == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(result, sink, compression="zstd")
        return bytes(sink.getvalue().to_pybytes())
    if output == "json":
        rows = orjson.dumps(result.to_pylist(), default=str, option=orjson.OPT_INDENT_2)
        return rows + b"\n"
    text = _as_csv(result) if output == "csv" else _as_table(result, width)
    return text.encode()


def _as_csv(result: pa.Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(result.column_names)
    for row in _rows(result):
        writer.writerow([_csv_cell(value) for value in row])
    return buffer.getvalue()


def _csv_cell(value: object) -> object:
    if isinstance(value, (list, dict)):
        return orjson.dumps(value, default=str).decode()
    return str(value).lower() if isinstance(value, bool) else value


def _as_table(result: pa.Table, width: int) -> str:
    """The first rows and the columns that fit, then a line about what is omitted."""
    from rich.console import Console

    names = result.column_names
    rows = [[_line(value) for value in row] for row in _rows(result.slice(0, _MAX_ROWS))]
    columns = _columns_that_fit(names, rows, width)
    limit = _wide_cell([_longest(names, rows, index) for index in columns], width)
    cells = [[_truncate(row[index], limit) for index in columns] for row in rows]
    buffer = io.StringIO()
    Console(file=buffer, width=width).print(_rich_table(result.select(columns).schema, cells))
    hidden = [name for index, name in enumerate(names) if index not in columns]
    return buffer.getvalue() + _footer(result.num_rows, len(rows), hidden)


def _rich_table(schema: pa.Schema, rows: list[list[str]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for field in schema:
        table.add_column(
            Text(field.name),
            justify="right" if _is_number(field.type) else "left",
            overflow="ellipsis",
            no_wrap=True,
            min_width=min(_NARROW, len(field.name)),
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _columns_that_fit(names: Sequence[str], rows: list[list[str]], width: int) -> list[int]:
    """Indices of the columns to show: from the left, while each gets a readable width."""
    columns: list[int] = []
    used = 0
    for index in range(len(names)):
        used += min(_longest(names, rows, index), _NARROW) + _GAP
        if columns and used > width + _GAP:
            break
        columns.append(index)
    return columns


def _wide_cell(longest: list[int], width: int) -> int:
    """Width of a wide column's cells: the space beside the narrow ones, shared equally."""
    narrow = [length for length in longest if length <= _NARROW]
    space = width - sum(narrow) - _GAP * (len(longest) - 1)
    return max(_NARROW, space // max(1, len(longest) - len(narrow)))


def _longest(names: Sequence[str], rows: list[list[str]], index: int) -> int:
    return max([len(names[index]), *(len(row[index]) for row in rows)])


def _footer(rows: int, shown_rows: int, hidden: list[str]) -> str:
    notes = [count_noun(rows, "row")]
    if shown_rows < rows:
        notes.append(f"first {shown_rows} shown")
    if hidden:
        notes.append(f"{count_noun(len(hidden), 'column')} not shown: {', '.join(hidden)}")
    return "; ".join(notes) + "\n"


def _rows(result: pa.Table) -> list[list[Any]]:
    columns = [column.to_pylist() for column in result.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _line(value: object) -> str:
    return " ".join(_text(value).split())


def _truncate(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, dict)):
        return orjson.dumps(value, default=str).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_number(column_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(column_type) or pa.types.is_floating(column_type))


def count_noun(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
