"""How rows become the Parquet file of a partition, and which rows a table accepts.

A file says in its footer which version of the table's schema it has, the hash of its content, and a
checksum of all its bytes, which costs a nanosecond each, with zeros in its own place.
"""

import io
import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import Row, SchemaMismatchError, Table

from .content_hash import ContentHash
from .storage import first_line, storage_errors

HASH_KEY, VERSION_KEY = b"interleave.content_hash", b"interleave.version"

_SUM_KEY, _NO_SUM = b"interleave.crc32", b"00000000"
_SUM_OFFSET = len(_SUM_KEY) + 2  # Thrift: field 2, a string of eight bytes

_ROW_GROUP = 122_880  # what DuckDB scans per thread at a time
_STREAM_ROWS, _STREAM_BYTES = 65_536, 64_000_000  # of a row group that is written from a stream
_WRITING: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}


def encode_rows(data: pa.Table, digest: str) -> bytes:
    sink = io.BytesIO()
    stamped = data.replace_schema_metadata({**(data.schema.metadata or {}), HASH_KEY: digest})
    with pq.ParquetWriter(sink, stamped.schema, **_WRITING) as writer:
        writer.write_table(stamped, row_group_size=_ROW_GROUP)
        writer.add_key_value_metadata({_SUM_KEY: _NO_SUM})
    content = bytearray(sink.getvalue())
    _add_checksum(content)
    return bytes(content)


def encode_stream(
    table: Table, reader: pa.RecordBatchReader, partition: str, file: Path
) -> tuple[int, str]:
    """Write a Parquet file; returns the number of rows and the content hash."""
    count, digest = 0, ContentHash(table.arrow_schema)
    with pq.ParquetWriter(file, table.arrow_schema, **_WRITING) as writer:
        for part in in_row_groups(reader):
            rows = conform_rows(table, part, partition)
            digest.add(rows)
            with storage_errors("written", file):
                writer.write_table(rows)
            count += rows.num_rows
            del part, rows
            pa.default_memory_pool().release_unused()
        writer.add_key_value_metadata({HASH_KEY: digest.hexdigest(), _SUM_KEY: _NO_SUM})
    with (
        storage_errors("written", file),
        file.open("r+b") as written,
        mmap.mmap(written.fileno(), 0) as content,
    ):
        _add_checksum(content)
    return count, digest.hexdigest()


def is_intact(content: bytes | mmap.mmap) -> bool:
    """Whether all bytes of a partition's file are as they were written."""
    start, checksum = _checksum(content)
    return content[start : start + len(checksum)] == checksum


def _add_checksum(content: bytearray | mmap.mmap) -> None:
    start, checksum = _checksum(content)
    content[start : start + len(checksum)] = checksum


def _checksum(content: bytes | bytearray | mmap.mmap) -> tuple[int, bytes]:
    """Where the checksum of a file is, and what it should be."""
    start = content.rfind(_SUM_KEY) + _SUM_OFFSET
    with memoryview(content) as view:
        before = crc32(_NO_SUM, crc32(view[:start]))
        return start, b"%08x" % crc32(view[start + len(_NO_SUM) :], before)


def in_row_groups(reader: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The reader's rows in tables of as many rows and bytes as a row group may have."""
    pending: list[pa.RecordBatch] = []
    for batch in reader:
        rows, size = sum(map(len, pending)), sum(each.nbytes for each in pending)
        if pending and (rows + len(batch) > _STREAM_ROWS or size + batch.nbytes > _STREAM_BYTES):
            yield pa.Table.from_batches(pending)
            pending = []
        pending.append(batch)
    if pending:
        yield pa.Table.from_batches(pending)


def conform_rows(table: Table, rows: pa.Table | Iterable[Row], partition: str) -> pa.Table:
    """Rows cast to the table's schema, columns in its order."""
    if not isinstance(rows, pa.Table):
        return table.to_arrow(rows)
    schema, where = table.arrow_schema, f"{table.name}/{partition}"
    if set(rows.column_names) != set(schema.names):
        raise SchemaMismatchError(f"{where}: {column_difference(rows.column_names, schema.names)}")
    nulls = [field.name for field in schema if not field.nullable and rows[field.name].null_count]
    if nulls:
        raise SchemaMismatchError(f"{where}: null in {', '.join(nulls)}, which must have a value")
    try:
        return rows.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise SchemaMismatchError(f"{where}: {first_line(error)}") from error


def column_difference(names: Sequence[str], expected: Sequence[str]) -> str:
    missing = [name for name in expected if name not in names]
    unknown = [name for name in names if name not in expected]
    parts = [f"without column {', '.join(missing)}"] if missing else []
    parts += [f"with unknown column {', '.join(unknown)}"] if unknown else []
    return " and ".join(parts) or "columns of another type or order"
