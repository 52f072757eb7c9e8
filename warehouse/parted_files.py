"""Rows in files of bounded size: `NAME.json`, or, where one does not hold them all,
`NAME-00000-of-00012.json` and on, as Hugging Face names them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

Row = Mapping[str, Any]
_BATCH = 256  # rows of a Parquet file in memory


class RowFile(Protocol):
    """A file that is written row by row."""

    def add(self, row: Row) -> None: ...

    def close(self) -> None: ...


class JsonList:
    """Writes a JSON list, a row per line."""

    def __init__(self, path: Path) -> None:
        self._file, self._separator = path.open("wb"), b"[\n"

    def add(self, row: Row) -> None:
        self._file.write(self._separator + orjson.dumps(row))
        self._separator = b",\n"

    def close(self) -> None:
        self._file.write(b"[\n]\n" if self._separator == b"[\n" else b"\n]\n")
        self._file.close()


class ParquetRows:
    """Writes a Parquet file, in batches."""

    def __init__(self, path: Path, schema: pa.Schema, **options: Any) -> None:
        self._schema, self._writer = schema, pq.ParquetWriter(path, schema, **options)
        self._batch: list[Row] = []

    def add(self, row: Row) -> None:
        self._batch.append(row)
        if len(self._batch) == _BATCH:
            self._write()

    def close(self) -> None:
        if self._batch:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._batch, schema=self._schema))
        self._batch = []


class PartedFile:
    """Writes rows to files of at most `rows_per_file`, which have their names when it is closed.

    Args:
        path: the file, where one holds all rows.
        parts: the folder of the files, where one does not.
        open_file: makes a file at a path.
    """

    def __init__(
        self, path: Path, parts: Path, rows_per_file: int, open_file: Callable[[Path], RowFile]
    ) -> None:
        self.count = 0
        self._path, self._parts, self._rows_per_file = path, parts, rows_per_file
        self._open_file, self._drafts = open_file, [path]
        self._file = open_file(path)

    def add(self, row: Row) -> None:
        if self.count == len(self._drafts) * self._rows_per_file:
            self._file.close()
            draft = self._path.with_name(f".{self._path.name}-{len(self._drafts):05d}")
            self._drafts.append(draft)
            self._file = self._open_file(draft)
        self._file.add(row)
        self.count += 1

    def close(self) -> bool:
        """Returns whether it is several files."""
        self._file.close()
        if len(self._drafts) == 1:
            return False
        self._parts.mkdir(exist_ok=True)
        for number, draft in enumerate(self._drafts):
            draft.rename(_part(self._path, self._parts, number, len(self._drafts)))
        return True


def stored_files(path: Path, parts: Path) -> list[Path]:
    """The files that `PartedFile` wrote, in order.

    Raises:
        FileNotFoundError: one is missing, which is named.
    """
    if path.is_file():
        return [path]
    found = sorted(parts.glob(f"{path.stem}-?????-of-?????{path.suffix}"))
    if not found:
        raise FileNotFoundError(path)
    total = int(found[0].stem[-5:])
    files = [_part(path, parts, number, total) for number in range(total)]
    for file in files:
        if file not in found:
            raise FileNotFoundError(file)
    return files


def _part(path: Path, parts: Path, number: int, total: int) -> Path:
    return parts / f"{path.stem}-{number:05d}-of-{total:05d}{path.suffix}"
