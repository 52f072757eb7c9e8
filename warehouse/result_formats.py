"""Answers of queries as bytes: a table for people; CSV, JSON or Parquet for programs."""

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


def render(answer: pa.Table, output: Format, width: int = 120) -> bytes:
    """An answer as bytes: text in UTF-8, or a Parquet file."""
    if output == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(answer, sink, compression="zstd")
        return bytes(sink.getvalue().to_pybytes())
    if output == "json":
        rows = orjson.dumps(answer.to_pylist(), default=str, option=orjson.OPT_INDENT_2)
        return rows + b"\n"
    text = _as_csv(answer) if output == "csv" else _as_table(answer, width)
    return text.encode()


def _as_csv(answer: pa.Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(answer.column_names)
    for row in _rows(answer):
        writer.writerow([_csv_cell(value) for value in row])
    return buffer.getvalue()


def _csv_cell(value: object) -> object:
    if isinstance(value, (list, dict)):
        return orjson.dumps(value, default=str).decode()
    return str(value).lower() if isinstance(value, bool) else value


def _as_table(answer: pa.Table, width: int) -> str:
    """The first rows and the columns that fit, then a line about what is not shown."""
    from rich.console import Console

    names = answer.column_names
    rows = [[_line(value) for value in row] for row in _rows(answer.slice(0, _MAX_ROWS))]
    keep = _columns_that_fit(names, rows, width)
    limit = _wide_cell([_longest(names, rows, index) for index in keep], width)
    shown = [[_cut(row[index], limit) for index in keep] for row in rows]
    buffer = io.StringIO()
    Console(file=buffer, width=width).print(_rich_table(answer.select(keep).schema, shown))
    hidden = [name for index, name in enumerate(names) if index not in keep]
    return buffer.getvalue() + _footer(answer.num_rows, len(rows), hidden)


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
    """Indices of the columns to show: from the left, while each can have a readable width."""
    keep: list[int] = []
    used = 0
    for index in range(len(names)):
        used += min(_longest(names, rows, index), _NARROW) + _GAP
        if keep and used > width + _GAP:
            break
        keep.append(index)
    return keep


def _wide_cell(longest: list[int], width: int) -> int:
    """Characters for a wide column's cells: what the narrow ones leave, shared equally."""
    narrow = [length for length in longest if length <= _NARROW]
    left = width - sum(narrow) - _GAP * (len(longest) - 1)
    return max(_NARROW, left // max(1, len(longest) - len(narrow)))


def _longest(names: Sequence[str], rows: list[list[str]], index: int) -> int:
    return max([len(names[index]), *(len(row[index]) for row in rows)])


def _footer(rows: int, shown: int, hidden: list[str]) -> str:
    notes = [counted(rows, "row")]
    if shown < rows:
        notes.append(f"first {shown} shown")
    if hidden:
        notes.append(f"{counted(len(hidden), 'column')} not shown: {', '.join(hidden)}")
    return "; ".join(notes) + "\n"


def _rows(answer: pa.Table) -> list[list[Any]]:
    columns = [column.to_pylist() for column in answer.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _line(value: object) -> str:
    return " ".join(_text(value).split())


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, dict)):
        return orjson.dumps(value, default=str).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def counted(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
