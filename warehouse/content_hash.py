"""Content hash of a table: the same for equal rows, however they are stored."""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BATCH_ROWS = 65_536


def content_hash(table: pa.Table) -> str:
    """sha256 over column names, types and values; independent of chunks, compression, metadata."""
    digest = new_digest(table.schema)
    for start in range(0, table.num_rows, BATCH_ROWS):
        add_batch(digest, table.slice(start, BATCH_ROWS))
    return str(digest.hexdigest())


def new_digest(schema: pa.Schema) -> Any:
    """The digest for `add_batch`; after the last batch its `hexdigest()` is the content hash."""
    columns = schema.to_string(show_field_metadata=False, show_schema_metadata=False)
    return hashlib.sha256(columns.encode())


def add_batch(digest: Any, batch: pa.Table) -> None:
    """Add the next `BATCH_ROWS` rows; the last batch may be shorter."""
    for column in batch.columns:
        _add(digest, pa.concat_arrays(column.chunks))


def _add(digest: Any, array: pa.Array) -> None:
    """Feed one array: its length, which values are null, then the values (null ones as zero)."""
    digest.update(len(array).to_bytes(8, "little"))
    digest.update(_bytes(pc.is_null(array)))
    if pa.types.is_string(array.type):
        _add_strings(digest, pc.fill_null(array, ""))
    elif pa.types.is_list(array.type):
        digest.update(_bytes(pc.fill_null(pc.list_value_length(array), 0)))
        _add(digest, array.flatten())
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            _add(digest, child)
    else:
        plain = array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array
        zero = False if pa.types.is_boolean(plain.type) else 0
        digest.update(_bytes(pc.fill_null(plain, zero)))


def _add_strings(digest: Any, array: pa.StringArray) -> None:
    digest.update(_bytes(pc.binary_length(array)))
    _, offsets, data = array.buffers()
    if data is not None and len(array):
        ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
        digest.update(memoryview(data)[ends[0] : ends[-1]])


def _bytes(array: pa.Array) -> bytes:
    return bytes(array.to_numpy(zero_copy_only=False).tobytes())
