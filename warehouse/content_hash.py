"""Content hash of a table: the same for equal rows, however they are stored."""

import hashlib
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .storage import storage_errors

BATCH_ROWS = 65_536
_RAW_BYTES = 32_000_000  # what is hashed later goes to a temporary file beyond that
# What is hashed of an array: a number of rows, a buffer, or where it is in the temporary file.
_Piece = Any


def content_hash(table: pa.Table) -> str:
    """sha256 over column names, types and values; independent of chunks, compression, metadata."""
    digest = ContentHash(table.schema)
    digest.add(table)
    return digest.hexdigest()


class ContentHash:
    """The content hash of rows that come in parts of any size.

    It goes through `BATCH_ROWS` rows column by column, so what comes later of a column waits: in
    memory, or in a temporary file where it is large.
    """

    def __init__(self, schema: pa.Schema) -> None:
        columns = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
        self._digest = hashlib.sha256(columns.encode())
        self._parts: list[list[_Piece]] = []  # of the batch so far
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        """Add the next rows, with the columns of the schema."""
        while table.num_rows:
            part = table.slice(0, BATCH_ROWS - self._rows)
            for batch in part.to_batches():
                self._add(batch)
            table = table.slice(part.num_rows)
            if self._rows == BATCH_ROWS:
                self._flush()

    def hexdigest(self) -> str:
        """The hash, after the last rows."""
        self._flush()
        return self._digest.hexdigest()

    def _add(self, batch: pa.RecordBatch) -> None:
        pieces = [piece for column in batch.columns for piece in _pieces(column)]
        self._rows += batch.num_rows
        self._bytes += sum(len(piece) for piece in pieces if isinstance(piece, pa.Buffer))
        self._parts.append([*map(self._spilled, pieces)] if self._bytes > _RAW_BYTES else pieces)

    def _flush(self) -> None:
        for pieces in zip(*self._parts, strict=True):
            if isinstance(pieces[0], int):
                self._digest.update(sum(pieces).to_bytes(8, "little"))
            else:
                for piece in pieces:
                    self._digest.update(self._raw(piece))
        if self._bytes > _RAW_BYTES:
            self._file.seek(0)
        self._parts, self._rows, self._bytes = [], 0, 0

    @cached_property
    def _file(self) -> IO[bytes]:
        return tempfile.TemporaryFile()  # noqa: SIM115: closed with this object

    def _spilled(self, piece: _Piece) -> _Piece:
        if not isinstance(piece, pa.Buffer):
            return piece
        with storage_errors("written", Path(tempfile.gettempdir())):
            start = self._file.tell()
            self._file.write(piece)
        return start, len(piece)

    def _raw(self, piece: _Piece) -> bytes | pa.Buffer:
        if not isinstance(piece, tuple):
            return piece
        start, length = piece
        self._file.seek(start)
        return self._file.read(length)


def _pieces(array: pa.Array) -> Iterator[_Piece]:
    """What is hashed of an array: length, which values are null, the values (null ones as zero)."""
    yield len(array)
    yield _bytes(pc.is_null(array))
    if pa.types.is_string(array.type):
        yield from _string_pieces(pc.fill_null(array, ""))
    elif pa.types.is_list(array.type):
        yield _bytes(pc.fill_null(pc.list_value_length(array), 0))
        yield from _pieces(array.flatten())
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _pieces(child)
    else:
        plain = array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
        zero = False if pa.types.is_boolean(plain.type) else 0
        yield _bytes(pc.fill_null(plain, zero))


def _string_pieces(array: pa.StringArray) -> Iterator[pa.Buffer]:
    yield _bytes(pc.binary_length(array))
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        yield pa.py_buffer(b"")
        return
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    yield data.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _bytes(array: pa.Array) -> pa.Buffer:
    return pa.py_buffer(array.to_numpy(zero_copy_only=False).tobytes())
