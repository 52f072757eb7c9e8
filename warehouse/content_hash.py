"""Content hash of a table: the same for equal rows, however they are stored."""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BATCH_ROWS = 65_536


def content_hash(table: pa.Table) -> str:
    """sha256 over column names, types and values; independent of chunks, compression, metadata."""
    running = RunningHash(table.schema)
    for start in range(0, table.num_rows, BATCH_ROWS):
        running.add(table.slice(start, BATCH_ROWS))
    return running.hexdigest()


class RunningHash:
    """`content_hash` of rows given in batches of `BATCH_ROWS` (the last may be shorter)."""

    def __init__(self, schema: pa.Schema) -> None:
        columns = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
        self._digest = hashlib.sha256(columns.encode())

    def add(self, batch: pa.Table) -> None:
        """Add the next batch."""
        for column in batch.columns:
            _add(self._digest, pa.concat_arrays(column.chunks))

    def hexdigest(self) -> str:
        """64 hexadecimal digits."""
        return self._digest.hexdigest()


def _add(digest: Any, array: pa.Array) -> None:
    """Feed one array: its length, which values are null, then the values (null ones as zero)."""
    digest.update(len(array).to_bytes(8, "little"))
    digest.update(_bytes(pc.is_null(array)))
    if pa.types.is_string(array.type):
        _add_strings(digest, array)
    elif pa.types.is_list(array.type):
        digest.update(_bytes(pc.fill_null(pc.list_value_length(array), 0)))
        _add(digest, array.flatten())
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            _add(digest, child)
    else:
        digest.update(_bytes(_zero_nulls(array)))


def _add_strings(digest: Any, array: pa.StringArray) -> None:
    filled = pc.fill_null(array, "")
    digest.update(_bytes(pc.binary_length(filled)))
    _, offsets, data = filled.buffers()
    if data is not None and len(filled):
        ends = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1]
        digest.update(memoryview(data)[ends[0] : ends[-1]])


def _zero_nulls(array: pa.Array) -> pa.Array:
    plain = array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
    return pc.fill_null(plain, False if pa.types.is_boolean(plain.type) else 0)


def _bytes(array: pa.Array) -> bytes:
    return bytes(np.ascontiguousarray(array.to_numpy(zero_copy_only=False)).tobytes())
