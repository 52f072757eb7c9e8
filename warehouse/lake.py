"""The lake: tables as Parquet files, one per partition, replaced atomically."""

import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from glob import escape
from typing import Any

import pyarrow as pa

from schemas import Row, StorageError, Table

from .partition_index import PartitionIndex, PartitionInfo
from .storage import FileState, Storage
from .table_files import (
    PART,
    REQUESTS,
    SCHEMA,
    StoredPartition,
    conform_rows,
    content_hash,
    encode_rows,
    encode_stream,
    is_intact,
    partition_path,
    stored_path,
)

__all__ = ["ALL", "REQUESTS", "Lake", "Listing", "Listings", "WriteResult"]

ALL = "all"
"""The partition of tables that are not sharded."""


@dataclass(frozen=True)
class Listing:
    """What the footers of a table's files say, by their folder; None: damaged or just removed."""

    table: Table
    infos: dict[str, PartitionInfo | None]

    @cached_property
    def hashes(self) -> dict[str, str]:
        """Content hash of each partition of the lineage that has one, in their order."""
        found = {name: _hash(self.table, info) for name, info in sorted(self.infos.items())}
        return {name: digest for name, digest in found.items() if digest and _in_lineage(name)}


Listings = dict[str, Listing]
"""The listings of some tables by name, see `Lake.listed_in`."""


@dataclass(frozen=True)
class WriteResult:
    """A stored partition; `changed` is False if its content was stored already."""

    rows: int
    content_hash: str
    url: str
    changed: bool = True


@dataclass(frozen=True)
class Lake:
    """Tables below one root; safe for concurrent readers, and for writers of other partitions."""

    storage: Storage
    index: PartitionIndex
    _listings: list[Listings] = field(default_factory=list, init=False, compare=False)

    @contextmanager
    def listed_in(self, listings: Listings) -> Iterator[None]:
        """Inside, questions about all partitions of a table are answered from `listings`, to which
        each table is added once: as it was then, whoever writes to it later."""
        self._listings.append(listings)
        try:
            yield
        finally:
            self._listings.pop()

    def write(
        self,
        table: Table,
        rows: pa.Table | pa.RecordBatchReader | Iterable[Row],
        partition: str = ALL,
    ) -> WriteResult:
        """Replace a partition, unless its content is the same.

        A reader is read batch by batch into a temporary file, so its rows need not fit in memory.

        Raises:
            SchemaMismatchError: the rows do not have the table's columns and types.
            StorageError: the partition cannot be written; the old one is unchanged.
        """
        if isinstance(rows, pa.RecordBatchReader):
            return self._write_stream(table, rows, partition)
        path = partition_path(table, partition)
        url = self.storage.url(path)
        data = conform_rows(table, rows, partition)
        count, digest = data.num_rows, content_hash(data)
        if self.content_hash(table, partition) == digest:
            return WriteResult(count, digest, url, changed=False)
        state = self.storage.write(path, encode_rows(data, digest))
        self._record(table, partition, state, PartitionInfo(digest, str(table.version), count))
        return WriteResult(count, digest, url)

    def read(
        self,
        table: Table,
        partitions: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        where: Any = None,
    ) -> pa.Table:
        """Rows of some partitions; a missing partition has none.

        Args:
            partitions: None: all but those of users' requests.
            where: a `pyarrow.compute` expression, such as `pc.field("accepted") == True`.

        Raises:
            SchemaMismatchError: a partition has a schema version that cannot be read.
            StorageError: a partition is damaged or cannot be read.
        """
        schema = _selected(table, columns)
        parts = [schema.empty_table()]
        for name in self.partitions(table) if partitions is None else partitions:
            with suppress(FileNotFoundError):
                rows = self.open(table, name).read(schema.names if where is None else None)
                matching = rows if where is None else rows.filter(where)
                parts.append(matching.select(schema.names).cast(schema))
        return pa.concat_tables(parts)

    def stream(
        self,
        table: Table,
        columns: Sequence[str] | None = None,
        partition: str = ALL,
        part_rows: int = 2_000,
    ) -> Iterator[pa.Table]:
        """Rows of a partition in parts of at most `part_rows`, which need not fit in memory.

        Raises (while it is read) what `read` does.
        """
        schema = _selected(table, columns)
        path = partition_path(table, partition)
        with suppress(FileNotFoundError), self.storage.snapshot(path) as file:
            stored = StoredPartition.open(self.storage, table, partition, file).checked()
            for batch in stored.batches(part_rows, schema.names):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)

    def is_absent(self, table: Table) -> bool:
        """Whether a table has no file at all, not even an empty one."""
        return next(self.storage.files(table.name, PART), None) is None

    def open(self, table: Table, partition: str) -> StoredPartition:
        """A partition as it is now; raises as `read`, and FileNotFoundError: there is none."""
        return StoredPartition.open(self.storage, table, partition).checked()

    def files(self, table: Table) -> dict[str, FileState]:
        """State of the file of each partition that a view reads: also of those of users' requests,
        and of the empty typed one."""
        files = sorted(self.storage.files(table.name, PART))
        return {name: state for name, state in files if not name.startswith(".")}

    def partitions(self, table: Table) -> list[str]:
        """Sorted names of the stored partitions, without those of users' requests."""
        names = self._listing(table).infos if self._listings else self.files(table)
        return sorted(filter(_in_lineage, names))

    def file(self, table: Table, partition: str) -> str:
        """Absolute path of a partition's file in a local lake, URL in a remote one."""
        return self.storage.url(stored_path(table, partition))

    def exists(self, table: Table, partition: str) -> bool:
        return self.storage.exists(partition_path(table, partition))

    def delete(self, table: Table, partition: str) -> None:
        """Remove a partition, if it exists."""
        self.storage.delete(partition_path(table, partition))

    def content_hash(self, table: Table, partition: str = ALL) -> str | None:
        """Hash of the rows as they were written; None: no partition of the current version."""
        return _hash(table, self._try_footer(table, partition))

    def content_hashes(self, table: Table) -> dict[str, str]:
        """`content_hash` of all `partitions` that have one, in their order; from the index."""
        return dict(self._listing(table).hashes)

    def rows(self, table: Table, partition: str | None = None) -> int:
        """Number of rows in a partition (0: missing), or in all of `partitions`; StorageError: a
        file is damaged."""
        if partition is not None:
            info = self._read_footer(table, partition)
            return info.rows if info else 0
        names = filter(_in_lineage, infos := self._listing(table).infos)
        found = [infos[name] or self._read_footer(table, name) for name in names]
        return sum(info.rows for info in found if info)

    def check(self, table: Table) -> None:
        """Check that every partition can be read; raises what `read` does."""
        for name in self.partitions(table):
            with suppress(FileNotFoundError):
                self.open(table, name)

    def verify(self, table: Table, partition: str) -> None:
        """Check all bytes of a partition's file.

        Raises:
            FileNotFoundError: there is no such partition.
            SchemaMismatchError, StorageError: see `read`.
        """
        stored = self.open(table, partition)
        with (
            self.storage.snapshot(stored_path(table, partition)) as file,
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content,
        ):
            if not is_intact(content):
                raise stored.damaged(ValueError("its checksum is wrong"))

    def glob(self, table: Table) -> str:
        """Pattern of the files of all partitions, for DuckDB's `read_parquet`."""
        return f"{escape(self.storage.url(table.name))}/*/{PART}"

    def write_schema_file(self, table: Table) -> None:
        """Write the empty typed file that makes a view valid before the first rows."""
        info = self._try_footer(table, SCHEMA)
        if info is None or info.schema_version != str(table.version):
            empty = table.arrow_schema.empty_table()
            self.storage.write(stored_path(table, SCHEMA), encode_rows(empty, content_hash(empty)))

    def _listing(self, table: Table) -> Listing:
        listings = self._listings[-1] if self._listings else {}
        if table.name not in listings:
            read_footer = partial(self._try_footer, table)
            infos = self.index.resolve(table.name, self.files(table), read_footer)
            listings[table.name] = Listing(table, infos)
        return listings[table.name]

    def _write_stream(
        self, table: Table, reader: pa.RecordBatchReader, partition: str
    ) -> WriteResult:
        path = partition_path(table, partition)
        url = self.storage.url(path)
        with self.storage.draft(path) as draft:
            count, digest = encode_stream(table, reader, partition, draft)
            if self.content_hash(table, partition) == digest:
                return WriteResult(count, digest, url, changed=False)
            state = self.storage.put(path, draft)
        if state:
            self._record(table, partition, state, PartitionInfo(digest, str(table.version), count))
        return WriteResult(count, digest, url)

    def _record(self, table: Table, partition: str, state: FileState, info: PartitionInfo) -> None:
        if not partition.startswith(REQUESTS):
            self.index.record(table.name, {partition: (state, info)})

    def _try_footer(self, table: Table, partition: str) -> PartitionInfo | None:
        """`_read_footer`; None also where it is damaged."""
        try:
            return self._read_footer(table, partition)
        except StorageError:
            return None

    def _read_footer(self, table: Table, partition: str) -> PartitionInfo | None:
        """What the footer says of a partition; None: there is no such partition."""
        try:
            return StoredPartition.open(self.storage, table, partition).info
        except FileNotFoundError:
            return None


def _selected(table: Table, columns: Sequence[str] | None) -> pa.Schema:
    """The table's schema, or that of some columns in their order."""
    schema = table.arrow_schema
    if columns is None:
        return schema
    return pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)


def _hash(table: Table, info: PartitionInfo | None) -> str | None:
    """None: there is none, or the file has another version."""
    if info and info.schema_version == str(table.version):
        return info.content_hash or None
    return None


def _in_lineage(folder: str) -> bool:
    """Whether a table's folder is a partition, and not one of users' requests."""
    return not folder.startswith(("_", "."))
