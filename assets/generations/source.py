"""Rows of requests as their file or query has them: cells by column, not yet validated.

Rows are numbered from 1, without the header and empty lines.
"""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from inference.generation.files import read_bytes
from schemas import FoundryError
from warehouse import Home
from warehouse.sql import run_query
from warehouse.storage import first_line

from .settings import GenerationsSettings


@dataclass(frozen=True)
class SourceRow:
    """A row, or its problem; empty cells are left out."""

    number: int
    cells: dict[str, Any]
    problem: str | None = None


def read_source(settings: GenerationsSettings, home: Home) -> list[SourceRow]:
    """All rows of the file or query.

    Raises:
        FoundryError: the file cannot be read or has no known format, or the query is invalid.
    """
    if settings.requests is None:
        rows: Iterator[Any] = iter(run_query(home, settings.query or "").to_pylist())
    else:
        rows = _reader(settings.requests)(read_bytes(settings.requests), settings.requests)
    return [_row(number, cells) for number, cells in enumerate(rows, 1)]


def _reader(location: str) -> Callable[[bytes, str], Iterator[Any]]:
    readers = {".jsonl": _json_lines, ".ndjson": _json_lines, ".csv": _csv, ".parquet": _parquet}
    for suffix, reader in readers.items():
        if location.lower().endswith(suffix):
            return reader
    raise FoundryError(f"{location} is of no known format: requests are {', '.join(readers)}")


def _row(number: int, cells: Any) -> SourceRow:
    if not isinstance(cells, dict):
        problem = str(cells) if isinstance(cells, _Problem) else "is no JSON object"
        return SourceRow(number, {}, problem)
    if None in cells:  # the key under which `csv` puts surplus cells
        return SourceRow(number, {}, "has more cells than there are columns")
    filled = {name.strip(): value for name, value in cells.items() if value not in (None, "")}
    return SourceRow(number, filled)


class _Problem(str):
    """Takes the place of a row that cannot be parsed."""


def _json_lines(data: bytes, location: str) -> Iterator[Any]:
    for line in _text(data, location).splitlines():
        if line.strip():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield _Problem(f"is not JSON ({error})")


def _csv(data: bytes, location: str) -> Iterator[Any]:
    try:
        yield from csv.DictReader(io.StringIO(_text(data, location), newline=""), strict=True)
    except csv.Error as error:
        raise FoundryError(f"{location} is not CSV: {error}") from error


def _parquet(data: bytes, location: str) -> Iterator[Any]:
    try:
        yield from pq.read_table(io.BytesIO(data)).to_pylist()
    except pa.ArrowException as error:
        raise FoundryError(f"{location} is not Parquet: {first_line(error)}") from error


def _text(data: bytes, location: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FoundryError(f"{location} is not UTF-8 text (byte {error.start})") from error
