"""The Parquet file of a partition: the rows that it accepts, its content hash, an open one.

A file says in its footer which version of the table's schema it has, the hash of its content (the
same for equal rows, however they are stored), and a checksum of all its bytes, which costs a
nanosecond each, with zeros in its own place.
"""

import hashlib
import io
import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas import Row, SchemaMismatchError, StorageError, Table

from .partition_index import PartitionInfo
from .storage import Storage, first_line, safe_name, storage_errors

BATCH_ROWS = 8_192  # that are hashed column by column

REQUESTS = "_requests-"
"""Prefix of the partitions of users' requests: in the views, but not part of the lineage."""

PART = "part-0.parquet"
SCHEMA = "_schema"
"""Name of the empty typed file that makes a view valid before the first rows."""

_HASH_KEY, _VERSION_KEY = b"interleave.content_hash", b"interleave.version"
_SUM_KEY, _NO_SUM = b"interleave.crc32", b"00000000"
_SUM_OFFSET = len(_SUM_KEY) + 2  # Thrift: field 2, a string of eight bytes

_ROW_GROUP = 122_880  # what DuckDB scans per thread at a time
_STREAM_ROWS, _STREAM_BYTES = 65_536, 64_000_000  # of a row group that is written from a stream
_WRITING: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
# What pyarrow raises where a checksum, the codec, the encoding, or the footer is wrong.
_DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError)


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


def encode_rows(data: pa.Table, digest: str) -> bytes:
    sink = io.BytesIO()
    stamped = data.replace_schema_metadata({**(data.schema.metadata or {}), _HASH_KEY: digest})
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
        writer.add_key_value_metadata({_HASH_KEY: digest.hexdigest(), _SUM_KEY: _NO_SUM})
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


@dataclass(frozen=True)
class StoredPartition:
    """A partition as it is now; it does not show replacements.

    All methods raise StorageError where the file, whose path or URL is `url`, is damaged.
    """

    table: Table
    name: str
    url: str
    file: pq.ParquetFile

    @classmethod
    def open(
        cls, storage: Storage, table: Table, name: str, source: Any = None
    ) -> "StoredPartition":
        """A partition below a lake's root (or an open file of it).

        Raises:
            FileNotFoundError: there is none.
            StorageError: its file is damaged or cannot be read.
        """
        path = stored_path(table, name)
        url, is_local = storage.url(path), storage.is_local
        with _damage_errors(table, url):
            if source is None:
                source = pa.OSFile(url) if is_local else io.BytesIO(storage.read(path))
            file = pq.ParquetFile(source, page_checksum_verification=True)
        return cls(table, name, url, file)

    @property
    def info(self) -> PartitionInfo:
        """What the footer says."""
        metadata = self.file.metadata.metadata or {}
        with _damage_errors(self.table, self.url):
            digest = metadata.get(_HASH_KEY, b"").decode()
            version = metadata.get(_VERSION_KEY, b"none").decode()
        return PartitionInfo(digest, version, int(self.file.metadata.num_rows))

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        with _damage_errors(self.table, self.url):
            return self.file.read(columns)

    def batches(self, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Its rows, at most `rows` at a time."""
        with _damage_errors(self.table, self.url):
            yield from self.file.iter_batches(rows, columns=columns)

    def checked(self) -> "StoredPartition":
        """Itself; SchemaMismatchError: it has another version or other columns than the table."""
        expected, version = self.table.arrow_schema, self.info.schema_version
        with _damage_errors(self.table, self.url):
            stored = self.file.schema_arrow
        if version != str(self.table.version):
            problem = f"has schema version {version}, this code reads version {self.table.version}"
        elif stored.names != expected.names or stored.types != expected.types:
            problem = column_difference(stored.names, expected.names)
        else:
            return self
        name = self.table.name
        raise SchemaMismatchError(
            f"table {name}, partition {self.name}: {problem}; materialize {name} again or delete "
            f"{self.url}"
        )

    def damaged(self, error: Exception) -> StorageError:
        return _damaged(self.table, self.url, error)


def partition_path(table: Table, partition: str) -> str:
    """Path of a partition's file below the lake's root; StorageError: it cannot have that name."""
    prefix = REQUESTS if partition.startswith(REQUESTS) else ""
    name = safe_name(partition.removeprefix(prefix), "partition")
    return f"{table.name}/{prefix}{name}/{PART}"


def stored_path(table: Table, partition: str) -> str:
    """`partition_path`, also of the empty typed file."""
    is_schema = partition == SCHEMA
    return f"{table.name}/{SCHEMA}/{PART}" if is_schema else partition_path(table, partition)


@contextmanager
def _damage_errors(table: Table, url: str) -> Iterator[None]:
    """Turn what is raised for a damaged file into one line; FileNotFoundError passes."""
    try:
        yield
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        raise _damaged(table, url, error) from error


def _damaged(table: Table, url: str, error: Exception) -> StorageError:
    remedy = f"`interleave verify --repair`, or delete it and materialize {table.name} again"
    return StorageError(f"{url} is damaged ({first_line(error)}): {remedy}")
