"""A stored partition that is open: a file of its own, or its row groups of a merged file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import SchemaMismatchError, StorageError, Table

from .merged_files import PARTITION_COLUMN, MergedPartition, entry_info
from .partition_index import PartitionInfo
from .storage import first_line
from .table_files import (
    HASH_KEY,
    column_difference,
    current_names,
    expected_schema,
    readable_versions,
    schema_version,
)

# What pyarrow raises where a checksum, the codec, the encoding, or the footer is wrong.
DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError)


@dataclass(frozen=True)
class StoredPartition:
    """A partition as it is now; it does not show replacements.

    Args:
        path: of its file, below the root of the lake.
        url: the same, absolute.
        entry: its place in a merged file; None: the file is its own.

    All methods raise StorageError where the file is damaged.
    """

    table: Table
    name: str
    path: str
    url: str
    file: pq.ParquetFile
    entry: MergedPartition | None = None

    @property
    def info(self) -> PartitionInfo:
        """What the footer says of it."""
        if self.entry:
            return entry_info(self.file.metadata, self.entry)
        metadata = self.file.metadata.metadata or {}
        try:
            digest, version = metadata.get(HASH_KEY, b"").decode(), schema_version(metadata)
        except UnicodeDecodeError as error:
            raise self.damaged(error) from error
        return PartitionInfo(digest, version, int(self.file.metadata.num_rows))

    @property
    def schema(self) -> pa.Schema:
        """Columns as they are stored."""
        stored = self.file.schema_arrow
        if self.entry:
            stored = stored.remove(stored.get_field_index(PARTITION_COLUMN))
        return stored

    def read(self, columns: Sequence[str]) -> pa.Table:
        try:
            if self.entry:
                return self.file.read_row_groups(self._groups, columns)
            return self.file.read(columns)
        except DAMAGE as error:
            raise self.damaged(error) from error

    def batches(self, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Its rows, at most `rows` at a time."""
        groups = self._groups if self.entry else None
        try:
            yield from self.file.iter_batches(rows, row_groups=groups, columns=columns)
        except DAMAGE as error:
            raise self.damaged(error) from error

    def checked(self) -> "StoredPartition":
        """Itself; SchemaMismatchError: it has a version or columns that cannot be read."""
        try:
            stored = self.schema
            expected = expected_schema(self.table, stored)
            version, names = schema_version(stored.metadata), current_names(self.table, stored)
        except DAMAGE as error:
            raise self.damaged(error) from error
        if version not in readable_versions(self.table):
            problem = f"has schema version {version}, this code reads version {self.table.version}"
        elif names != expected.names or stored.types != expected.types:
            problem = column_difference(names, expected.names)
        else:
            return self
        name = self.table.name
        raise SchemaMismatchError(
            f"table {name}, partition {self.name}: {problem}; materialize {name} again or delete "
            f"{self.url}"
        )

    def damaged(self, error: Exception) -> StorageError:
        return file_damaged(self.table, self.url, error, merged=self.entry is not None)

    @property
    def _groups(self) -> list[int]:
        assert self.entry
        return list(range(self.entry.first_group, self.entry.first_group + self.entry.groups))


def file_damaged(table: Table, url: str, error: Exception, merged: bool = False) -> StorageError:
    remedy = "`interleave verify --repair`"
    if not merged:
        remedy += f", or delete it and materialize {table.name} again"
    return StorageError(f"{url} is damaged ({first_line(error)}): {remedy}")
