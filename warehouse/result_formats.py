"""Query results as bytes: a text table, CSV, JSON or Parquet."""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

Format = Literal["table", "csv", "json", "parquet"]

_MAX_ROWS = 50
_NARROW = 24
_GAP = 3  # between two columns


def render(result: pa.Table, output: Format, width: int = 120) -> bytes:
    """A query result as a Parquet file or UTF-8 text, a `table` for a terminal of that width."""
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
    writer.writerows(map(_plain, row) for row in _rows(result))
    return buffer.getvalue()


def _as_table(result: pa.Table, width: int) -> str:
    """The first rows and the columns that fit, then a line about what is omitted."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def cell(text: str) -> Text:  # the table itself would cut all columns alike
        return Text(text, no_wrap=True, overflow="ellipsis")

    rows = [list(map(_line, row)) for row in _rows(result.slice(0, _MAX_ROWS))]
    widths = [max(map(len, column)) for column in zip(result.column_names, *rows, strict=True)]
    shown = _columns_that_fit(widths, width)
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for field in list(result.schema)[:shown]:
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(
            cell(field.name),
            justify="right" if is_number else "left",
            min_width=min(_NARROW, len(field.name)),
        )
    for row in rows:
        table.add_row(*map(cell, row[:shown]))
    buffer = io.StringIO()
    Console(file=buffer, width=width).print(table)
    return buffer.getvalue() + _footer(result.num_rows, len(rows), result.column_names[shown:])


def _columns_that_fit(widths: Sequence[int], width: int) -> int:
    """How many columns to show: from the left, while each gets a readable width."""
    ends = accumulate(min(each, _NARROW) + _GAP for each in widths)
    return max(1, sum(end <= width + _GAP for end in ends))


def _footer(rows: int, shown_rows: int, hidden: list[str]) -> str:
    notes = [count_noun(rows, "row")]
    if shown_rows < rows:
        notes.append(f"first {shown_rows} shown")
    if hidden:
        notes.append(f"{count_noun(len(hidden), 'column')} not shown: {', '.join(hidden)}")
    return "; ".join(notes) + "\n"


def _rows(result: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in result.columns), strict=True)


def _line(value: object) -> str:
    if value is None:
        return "NULL"
    text = f"{value:.6g}" if isinstance(value, float) else str(_plain(value))
    return " ".join(text.split())


def _plain(value: object) -> object:
    """Nested values as JSON, truth values as in SQL, others as they are."""
    if isinstance(value, (list, dict)):
        return orjson.dumps(value, default=str).decode()
    return str(value).lower() if isinstance(value, bool) else value


def count_noun(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
