"""Rows of requests as their file or query has them: cells by column, not yet validated.

Rows are numbered from 1, without the header and empty lines.
"""

import csv
import io
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

_FORMATS = (".jsonl", ".ndjson", ".csv", ".parquet")


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
        rows = run_query(home, settings.query or "").to_pylist()
    else:
        rows = _read_file(settings.requests)
    return [_row(number, cells) for number, cells in enumerate(rows, 1)]


def _read_file(location: str) -> list[Any]:
    """Its rows; those that cannot be parsed as the error."""
    suffix = next((s for s in _FORMATS if location.lower().endswith(s)), None)
    if suffix is None:
        raise FoundryError(f"{location} is of no known format: requests are {', '.join(_FORMATS)}")
    data = read_bytes(location)
    try:
        if suffix == ".parquet":
            return pq.read_table(io.BytesIO(data)).to_pylist()
        text = data.decode("utf-8-sig")
        if suffix == ".csv":
            return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        return [_parse_line(line) for line in text.splitlines() if line.strip()]
    except pa.ArrowException as error:
        raise FoundryError(f"{location} is not Parquet: {first_line(error)}") from error
    except csv.Error as error:
        raise FoundryError(f"{location} is not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise FoundryError(f"{location} is not UTF-8 text (byte {error.start})") from error


def _parse_line(line: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return error


def _row(number: int, cells: Any) -> SourceRow:
    if isinstance(cells, orjson.JSONDecodeError):
        return SourceRow(number, {}, f"is not JSON ({cells})")
    if not isinstance(cells, dict):
        return SourceRow(number, {}, "is no JSON object")
    if None in cells:  # the key under which `csv` puts surplus cells
        return SourceRow(number, {}, "has more cells than there are columns")
    filled = {name.strip(): value for name, value in cells.items() if value not in (None, "")}
    return SourceRow(number, filled)
