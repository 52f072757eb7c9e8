"""Rows of JSON, JSON lines, CSV and Parquet files.

A row that cannot be read is the problem that it has, so that one does not hold up the others.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from schemas import FoundryError
from warehouse.storage import first_line

Row = dict[str, Any] | str  # cells by column, or why there are none
_BATCH_ROWS = 1_000


def read_rows(name: str, file: BinaryIO) -> Iterator[Row]:
    """The rows of a file, in the format of the suffix of its name; empty lines are left out.

    Raises (while they are read):
        FoundryError: it cannot be read, or is in none of the formats.
    """
    read = next((read for end, read in _READERS.items() if name.lower().endswith(end)), None)
    if read is None:
        known = ", ".join(_READERS)
        raise FoundryError(f"{name} is of no known format: rows are read from {known}")
    try:
        yield from read(file)
    except pa.ArrowException as error:
        raise FoundryError(f"{name} is not Parquet: {first_line(error)}") from error
    except csv.Error as error:
        raise FoundryError(f"{name} is not CSV: {error}") from error
    except UnicodeDecodeError as error:
        raise FoundryError(f"{name} is not UTF-8 text") from error
    except (OSError, ValueError) as error:
        raise FoundryError(f"{name} cannot be read: {first_line(error)}") from error


def _json(file: BinaryIO) -> Iterator[Row]:
    rows = orjson.loads(file.read())
    if not isinstance(rows, list):
        raise ValueError("it is no list")
    return map(_object, rows)


def _json_lines(file: BinaryIO) -> Iterator[Row]:
    return map(_json_line, filter(bytes.strip, file))


def _json_line(line: bytes) -> Row:
    try:
        return _object(orjson.loads(line.decode("utf-8-sig")))
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    except orjson.JSONDecodeError as error:
        return f"is not JSON ({error})"


def _object(row: Any) -> Row:
    return row if isinstance(row, dict) else "is no JSON object"


def _csv(file: BinaryIO) -> Iterator[Row]:
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    for row in csv.DictReader(text, strict=True):
        # `None` is the key of surplus cells.
        yield "has more cells than there are columns" if None in row else row


def _parquet(file: BinaryIO) -> Iterator[Row]:
    for batch in pq.ParquetFile(file).iter_batches(_BATCH_ROWS):
        yield from batch.to_pylist()


_READERS = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
