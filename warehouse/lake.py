"""The lake: tables as Parquet files, one per partition, replaced atomically."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from glob import escape
from typing import Any

import pyarrow as pa

from schemas import Row, StorageError, Table

from .checksums import is_sealed_intact
from .content_hash import content_hash
from .merged_files import DELETED, MERGED, MERGED_NAMES, merged_file, merged_path, write_merged
from .partition_index import PartitionIndex, PartitionInfo
from .partition_reader import (
    PART,
    REQUESTS,
    SCHEMA,
    PartitionReader,
    deleted_path,
    own_path,
    stored_path,
)
from .storage import FileState, Storage
from .stored_partition import StoredPartition
from .table_files import (
    conform_rows,
    current_rows,
    encode_rows,
    encode_stream,
    given_names,
    names_by_stored,
    readable_hash,
    readable_versions,
    selected_schema,
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
        """Content hash of each partition that has one of a readable version, in their order."""
        infos, versions = self.infos, readable_versions(self.table)
        return {
            name: info.content_hash
            for name in sorted(infos)
            if (info := infos[name])
            and info.content_hash
            and info.schema_version in versions
            and _in_lineage(name)
        }


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
    """Tables below one root; safe for concurrent readers, and for writers of other partitions.

    A partition is a file of its own, or a part of a merged file (`merged_files.py`).
    """

    storage: Storage
    index: PartitionIndex
    _listings: list[Listings] = field(default_factory=list, init=False, compare=False)

    @cached_property
    def _reader(self) -> PartitionReader:
        return PartitionReader(self.storage)

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
        Arrow rows may lack columns of `Table.added`: they become nulls, and the content hash is
        that of rows of the version before.

        Raises:
            SchemaMismatchError: the rows do not have the table's columns and types.
            StorageError: the partition cannot be written; the old one is unchanged.
        """
        if isinstance(rows, pa.RecordBatchReader):
            return self._write_stream(table, rows, partition)
        path = own_path(table, partition)
        url = self.storage.url(path)
        data = conform_rows(table, rows, partition)
        hashed = data.select(given_names(table, rows)) if isinstance(rows, pa.Table) else data
        count, digest = data.num_rows, content_hash(hashed)
        if self.content_hash(table, partition) == digest:
            return WriteResult(count, digest, url, changed=False)
        encoded = encode_rows(data, digest)
        with self.storage.locked():
            state = self.storage.write(path, encoded)
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
        schema = selected_schema(table, columns)
        parts = [schema.empty_table()]
        for name in self.partitions(table) if partitions is None else partitions:
            with suppress(FileNotFoundError):
                parts.append(self._read_partition(table, name, schema, where))
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
        schema = selected_schema(table, columns)
        with suppress(FileNotFoundError), self._snapshot(table, partition) as opened:
            stored = opened.checked()
            names = names_by_stored(table, stored.schema)
            selected = [name for name, current in names.items() if current in schema.names]
            for batch in stored.batches(part_rows, selected):
                yield current_rows(table, pa.Table.from_batches([batch]), names, schema)

    def is_absent(self, table: Table) -> bool:
        """Whether a table has no file at all, not even an empty one."""
        own = next(self.storage.find(table.name, PART), None)
        return own is None and not self.merged_files(table)

    def own_partitions(self, table: Table) -> list[str]:
        """Sorted names of all that have a file of their own: also users' requests, and the empty
        typed file."""
        return sorted(n for n in self.storage.find(table.name, PART) if not n.startswith("."))

    def own_files(self, table: Table) -> dict[str, FileState]:
        """State of the files of `own_partitions`."""
        files = self.storage.files(table.name, PART)
        return {name: state for name, state in files.items() if not name.startswith(".")}

    def open(self, table: Table, partition: str) -> StoredPartition:
        """A partition as it is now; raises as `read`, and FileNotFoundError: there is none."""
        return self._reader.open(table, partition).checked()

    def all_partitions(self, table: Table) -> list[str]:
        """Sorted names of all that a view reads: also users' requests, and the empty typed file."""
        own = self.own_partitions(table)
        return sorted({*own, *self._merged(table, own)})

    def partitions(self, table: Table) -> list[str]:
        """Sorted names of the stored partitions, without those of users' requests."""
        if self._listings:
            names: Iterable[str] = self._infos(table)
        else:
            own = self.own_files(table)
            names = {*own, *self._merged(table, own)}
        return sorted(filter(_in_lineage, names))

    def merged_files(self, table: Table) -> dict[str, FileState]:
        """Names and states of the table's merged files."""
        files = self.storage.folder_files(f"{table.name}/{MERGED}", ".parquet")
        return {name: state for name, state in files.items() if not name.startswith(SCHEMA)}

    def merged_partitions(
        self, table: Table, file: str, hidden: bool = False
    ) -> dict[str, StoredPartition]:
        """The partitions of a merged file.

        Args:
            hidden: also those that have a file of their own or were deleted.

        Raises:
            FileNotFoundError: there is no such file.
            StorageError: its footer is damaged.
        """
        entries = self._reader.entries(table, file)
        if hidden:
            return entries
        instead = self._hidden(table, self.own_partitions(table))
        return {name: stored for name, stored in entries.items() if name not in instead}

    def file(self, table: Table, partition: str) -> str:
        """Absolute path of a partition's file in a local lake, URL in a remote one."""
        own = stored_path(table, partition)
        merged = merged_file(table, partition)
        if merged and not self.storage.exists(own):
            path = merged_path(table, merged)
            if self.storage.exists(path):
                return self.storage.url(path)
        return self.storage.url(own)

    def exists(self, table: Table, partition: str) -> bool:
        if self.storage.exists(own_path(table, partition)):
            return True
        if merged_file(table, partition) is None:
            return False
        return self._read_footer(table, partition) is not None

    def delete(self, table: Table, partition: str) -> None:
        """Remove a partition, if it exists."""
        with self.storage.locked():
            if merged_file(table, partition) and self.exists(table, partition):
                # Also where it is not merged: that may be about to happen.
                empty = encode_rows(table.arrow_schema.empty_table(), "")
                self.storage.write(deleted_path(table, partition), empty)
            self.storage.delete(own_path(table, partition))

    def content_hash(self, table: Table, partition: str = ALL) -> str | None:
        """Hash of the rows as they were written; None: no partition of a readable version."""
        return readable_hash(table, self._try_footer(table, partition))

    def content_hashes(self, table: Table) -> dict[str, str]:
        """`content_hash` of all `partitions` that have one, in their order; from the index."""
        return dict(self._listing(table).hashes)

    def rows(self, table: Table, partition: str | None = None) -> int:
        """Number of rows in a partition (0: missing), or in all of `partitions`; StorageError: a
        file is damaged."""
        if partition is not None:
            info = self._read_footer(table, partition)
            return info.rows if info else 0
        infos = [
            info or self._read_footer(table, name)
            for name, info in self._infos(table).items()
            if _in_lineage(name)
        ]
        return sum(info.rows for info in infos if info)

    def is_current(self, table: Table) -> bool:
        """Whether every file, also of users' requests, has the table's current schema version."""
        version = str(table.version)
        return all(info and info.schema_version == version for info in self._infos(table).values())

    def check(self, table: Table) -> None:
        """Check that every partition can be read; raises what `read` does."""
        for name in self.partitions(table):
            with suppress(FileNotFoundError):
                self.open(table, name)

    def verify(self, table: Table, partition: str) -> None:
        """Check all bytes of a partition's file; of one without a checksum, its pages and rows.

        Raises:
            FileNotFoundError: there is no such partition.
            SchemaMismatchError, StorageError: see `read`.
        """
        stored = self._reader.open(table, partition)
        with self.storage.open(stored.path) as file:
            intact = is_sealed_intact(file)
        if intact is False:
            raise stored.damaged(ValueError("its checksum is wrong"))
        stored.checked()
        if intact is None:
            self.verify_rows(stored)

    def is_merged_intact(self, table: Table, file: str) -> bool:
        """Whether all bytes of a merged file are as they were written."""
        with self.storage.open(merged_path(table, file)) as opened:
            return is_sealed_intact(opened) is True

    def verify_rows(self, stored: StoredPartition) -> None:
        """Check the pages and, where its version allows that, the hash of a partition's rows."""
        rows, info = stored.read(stored.schema.names), stored.info
        is_current = info.schema_version == str(stored.table.version)
        if not info.content_hash or not is_current or content_hash(rows) == info.content_hash:
            return
        # Columns that the rows lacked when they were written are not in their hash.
        added = [name for name in stored.table.added if name in rows.column_names]
        if not added or content_hash(rows.drop_columns(added)) != info.content_hash:
            raise stored.damaged(ValueError("its rows have another hash"))

    def unmerge(self, table: Table, file: str) -> None:
        """Give each partition of a merged file that is not damaged a file of its own."""
        for name, stored in self.merged_partitions(table, file).items():
            with suppress(StorageError):
                self.verify_rows(stored)
                metadata = stored.schema.metadata
                own = {key: metadata[key] for key in table.arrow_schema.metadata}
                rows = stored.read(stored.schema.names).replace_schema_metadata(own)
                encoded = encode_rows(rows, stored.info.content_hash)
                with self.storage.locked():
                    self.storage.write(own_path(table, name), encoded)

    def glob(self, table: Table) -> str:
        """Pattern of all the partitions' own files, for DuckDB's `read_parquet`; also of those that
        say that a partition was deleted, which are empty."""
        return f"{escape(self.storage.url(table.name))}/*/part-*.parquet"

    def merged_glob(self, table: Table) -> str | None:
        """Pattern of the table's merged files, for DuckDB's `read_parquet`; None: there are none,
        not even an empty one."""
        if not self.storage.folder_files(f"{table.name}/{MERGED}", ".parquet"):
            return None
        return f"{escape(self.storage.url(table.name))}/{MERGED}/*.parquet"

    def write_schema_file(self, table: Table) -> None:
        """Write the empty typed files that make a view valid before the first rows."""
        info = self._try_footer(table, SCHEMA)
        if info is None or info.schema_version != str(table.version):
            empty = table.arrow_schema.empty_table()
            path = stored_path(table, SCHEMA)
            self.storage.write(path, encode_rows(empty, content_hash(empty)))
        if table.name in MERGED_NAMES:
            self._write_empty_merged_file(table)

    def _write_empty_merged_file(self, table: Table) -> None:
        current = f"{SCHEMA}-{table.version}.parquet"
        found = self.storage.folder_files(f"{table.name}/{MERGED}", ".parquet")
        if current not in found:
            path = merged_path(table, current)
            with self.storage.draft(path) as draft:
                write_merged(draft, table, ())
                self.storage.put(path, draft)
        older = [name for name in found if name.startswith(SCHEMA) and name != current]
        self.storage.delete_all([merged_path(table, name) for name in older])

    def _infos(self, table: Table) -> dict[str, PartitionInfo | None]:
        """What the footers of all files say, by their folder; None: damaged or just removed."""
        return self._listing(table).infos

    def _listing(self, table: Table) -> Listing:
        listings = self._listings[-1] if self._listings else {}
        if table.name not in listings:
            files = self.own_files(table)
            infos = self.index.resolve(table.name, files, partial(self._try_footer, table))
            infos.update(self._merged(table, files))
            listings[table.name] = Listing(table, infos)
        return listings[table.name]

    def _write_stream(
        self, table: Table, reader: pa.RecordBatchReader, partition: str
    ) -> WriteResult:
        path = own_path(table, partition)
        url = self.storage.url(path)
        with self.storage.draft(path) as draft:
            count, digest = encode_stream(table, reader, partition, draft)
            if self.content_hash(table, partition) == digest:
                return WriteResult(count, digest, url, changed=False)
            with self.storage.locked():
                state = self.storage.put(path, draft)
        if state:
            self._record(table, partition, state, PartitionInfo(digest, str(table.version), count))
        return WriteResult(count, digest, url)

    def _record(self, table: Table, partition: str, state: FileState, info: PartitionInfo) -> None:
        if not partition.startswith(REQUESTS):
            self.index.record(table.name, {partition: (state, info)})

    def _merged(self, table: Table, own: Iterable[str]) -> dict[str, PartitionInfo]:
        """What merged files say of the partitions that are in no file of their `own`."""
        files = self.merged_files(table)
        if not files:
            return {}
        resolved = self.index.resolve_merged(table.name, files, partial(self._entries, table))
        hidden = self._hidden(table, own)
        return {
            name: info
            for entries in resolved.values()
            for name, info in entries.items()
            if name not in hidden
        }

    def _hidden(self, table: Table, own: Iterable[str]) -> set[str]:
        """Partitions that merged files do not stand for."""
        return {*own, *self.storage.find(table.name, DELETED)}

    def _entries(self, table: Table, file: str) -> dict[str, PartitionInfo]:
        with suppress(FileNotFoundError):
            return {n: each.info for n, each in self._reader.entries(table, file).items()}
        return {}

    @contextmanager
    def _snapshot(self, table: Table, partition: str) -> Iterator[StoredPartition]:
        """A partition as it is now, to be read in parts; FileNotFoundError: there is none."""
        with ExitStack() as stack:
            source = None
            with suppress(FileNotFoundError):
                source = stack.enter_context(self.storage.snapshot(own_path(table, partition)))
            yield self._reader.open(table, partition, source)

    def _try_footer(self, table: Table, partition: str) -> PartitionInfo | None:
        """`_read_footer`; None also where it is damaged."""
        try:
            return self._read_footer(table, partition)
        except StorageError:
            return None

    def _read_footer(self, table: Table, partition: str) -> PartitionInfo | None:
        """What the footer says of a partition; None: there is no such partition."""
        try:
            return self._reader.open(table, partition).info
        except FileNotFoundError:
            return None

    def _read_partition(
        self, table: Table, partition: str, schema: pa.Schema, where: Any
    ) -> pa.Table:
        stored = self.open(table, partition)
        names = names_by_stored(table, stored.schema)
        needed = schema.names if where is None else names.values()
        columns = [stored for stored, name in names.items() if name in needed]
        return current_rows(table, stored.read(columns), names, schema, where)


def _in_lineage(folder: str) -> bool:
    """Whether a table's folder is a partition, and not one of users' requests."""
    return not folder.startswith(("_", "."))
