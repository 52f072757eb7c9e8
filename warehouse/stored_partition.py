"""A partition's Parquet file that is open."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import SchemaMismatchError, StorageError, Table

from .partition_index import PartitionInfo
from .storage import Storage, first_line, safe_name
from .table_files import HASH_KEY, VERSION_KEY, column_difference

REQUESTS = "_requests-"
"""Prefix of the partitions of users' requests: in the views, but not part of the lineage."""

PART = "part-0.parquet"
SCHEMA = "_schema"
"""Name of the empty typed file that makes a view valid before the first rows."""

# What pyarrow raises where a checksum, the codec, the encoding, or the footer is wrong.
_DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError)


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
        try:
            if source is None:
                source = pa.OSFile(url) if is_local else io.BytesIO(storage.read(path))
            file = pq.ParquetFile(source, page_checksum_verification=True)
        except FileNotFoundError:
            raise
        except _DAMAGE as error:
            raise _damaged(table, url, error) from error
        return cls(table, name, url, file)

    @property
    def info(self) -> PartitionInfo:
        """What the footer says."""
        metadata = self.file.metadata.metadata or {}
        try:
            digest = metadata.get(HASH_KEY, b"").decode()
            version = metadata.get(VERSION_KEY, b"none").decode()
        except UnicodeDecodeError as error:
            raise self.damaged(error) from error
        return PartitionInfo(digest, version, int(self.file.metadata.num_rows))

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        try:
            return self.file.read(columns)
        except _DAMAGE as error:
            raise self.damaged(error) from error

    def batches(self, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Its rows, at most `rows` at a time."""
        try:
            yield from self.file.iter_batches(rows, columns=columns)
        except _DAMAGE as error:
            raise self.damaged(error) from error

    def checked(self) -> "StoredPartition":
        """Itself; SchemaMismatchError: it has another version or other columns than the table."""
        expected, version = self.table.arrow_schema, self.info.schema_version
        try:
            stored = self.file.schema_arrow
        except _DAMAGE as error:
            raise self.damaged(error) from error
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


def _damaged(table: Table, url: str, error: Exception) -> StorageError:
    remedy = f"`interleave verify --repair`, or delete it and materialize {table.name} again"
    return StorageError(f"{url} is damaged ({first_line(error)}): {remedy}")
