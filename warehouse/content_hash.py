"""Content hash of a table: the same for equal rows, however they are stored."""

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BATCH_ROWS = 8_192


def content_hash(table: pa.Table) -> str:
    """sha256 over column names, types and values; independent of chunks, compression, metadata."""
    digest = ContentHash(table.schema)
    digest.add(table)
    return digest.hexdigest()


class ContentHash:
    """The content hash of rows that come in parts of any size.

    It goes through `BATCH_ROWS` rows column by column, so that many are held in memory.
    """

    def __init__(self, schema: pa.Schema) -> None:
        columns = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
        self._digest = hashlib.sha256(columns.encode())
        self._parts: list[pa.Table] = []  # of the batch so far
        self._rows = 0

    def add(self, table: pa.Table) -> None:
        """Add the next rows, with the columns of the schema."""
        while table.num_rows:
            part = table.slice(0, BATCH_ROWS - self._rows)
            table = table.slice(part.num_rows)
            self._parts.append(part)
            self._rows += part.num_rows
            if self._rows == BATCH_ROWS:
                self._flush()

    def hexdigest(self) -> str:
        """The hash, after the last rows."""
        self._flush()
        return self._digest.hexdigest()

    def _flush(self) -> None:
        if self._rows:
            for column in pa.concat_tables(self._parts).combine_chunks().columns:
                for piece in _pieces(column.chunk(0)):
                    self._digest.update(piece)
        self._parts, self._rows = [], 0


def _pieces(array: pa.Array) -> Iterator[bytes | pa.Buffer]:
    """What is hashed of an array: length, which values are null, the values (null ones as zero)."""
    yield len(array).to_bytes(8, "little")
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


def _string_pieces(array: pa.StringArray) -> Iterator[bytes | pa.Buffer]:
    yield _bytes(pc.binary_length(array))
    _, offsets, data = array.buffers()
    if data is not None and len(array):
        ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
        yield data.slice(int(ends[0]), int(ends[-1] - ends[0]))


def _bytes(array: pa.Array) -> bytes:
    return bytes(array.to_numpy(zero_copy_only=False).tobytes())
