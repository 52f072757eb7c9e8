"""The lake: tables as Parquet files, one per partition, replaced atomically."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from glob import escape
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import Row, SchemaMismatchError, StorageError, Table

from .checksums import is_sealed_intact
from .content_hash import content_hash
from .partition_index import PartitionIndex, PartitionInfo
from .storage import FileState, Storage, first_line, safe_name
from .table_files import (
    HASH_KEY,
    column_difference,
    conform_rows,
    current_names,
    current_rows,
    encode_rows,
    encode_stream,
    expected_schema,
    given_names,
    names_by_stored,
    readable_hash,
    readable_versions,
    schema_version,
    selected_schema,
)

ALL = "all"
"""The partition of tables that are not sharded."""

REQUESTS = "_requests-"
"""Prefix of the partitions of users' requests: in the views, but not part of the lineage."""

_PART = "part-0.parquet"
_SCHEMA = "_schema"  # of an empty typed file
# What pyarrow raises where a checksum, the codec, the encoding, or the footer is wrong.
_DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError)


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
        Arrow rows may lack columns of `Table.added`: they become nulls, and the content hash is
        that of rows of the version before.

        Raises:
            SchemaMismatchError: the rows do not have the table's columns and types.
            StorageError: the partition cannot be written; the old one is unchanged.
        """
        if isinstance(rows, pa.RecordBatchReader):
            return self._write_stream(table, rows, partition)
        path = _path(table, partition)
        url = self.storage.url(path)
        data = conform_rows(table, rows, partition)
        hashed = data.select(given_names(table, rows)) if isinstance(rows, pa.Table) else data
        count, digest = data.num_rows, content_hash(hashed)
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
        with suppress(FileNotFoundError), self.storage.snapshot(_path(table, partition)) as file:
            opened = self._open_checked(table, partition, file)
            names = names_by_stored(table, opened)
            stored = [name for name, current in names.items() if current in schema.names]
            batches = opened.iter_batches(part_rows, columns=stored)
            while (batch := self._next_batch(table, partition, batches)) is not None:
                yield current_rows(table, pa.Table.from_batches([batch]), names, schema)

    def is_absent(self, table: Table) -> bool:
        """Whether a table has no file at all, not even an empty one."""
        return next(self.storage.find(table.name, _PART), None) is None

    def all_partitions(self, table: Table) -> list[str]:
        """Sorted names of all that a view reads: also users' requests, and the empty typed file."""
        return sorted(n for n in self.storage.find(table.name, _PART) if not n.startswith("."))

    def partitions(self, table: Table) -> list[str]:
        """Sorted names of the stored partitions, without those of users' requests."""
        names = self._infos(table) if self._listings else self._files(table)
        return sorted(filter(_in_lineage, names))

    def file(self, table: Table, partition: str) -> str:
        """Absolute path of a partition's file in a local lake, URL in a remote one."""
        return self.storage.url(_stored_path(table, partition))

    def exists(self, table: Table, partition: str) -> bool:
        return self.storage.exists(_path(table, partition))

    def delete(self, table: Table, partition: str) -> None:
        """Remove a partition, if it exists."""
        self.storage.delete(_path(table, partition))

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
                self._open_checked(table, name)

    def verify(self, table: Table, partition: str) -> None:
        """Check all bytes of a partition; of a file without a checksum, its pages and rows.

        Raises:
            FileNotFoundError: there is no such partition.
            SchemaMismatchError, StorageError: see `read`.
        """
        with self.storage.open(_stored_path(table, partition)) as stored:
            intact = is_sealed_intact(stored)
        if intact is False:
            raise self._damaged(table, partition, ValueError("its checksum is wrong"))
        file = self._open_checked(table, partition)
        if intact is None:
            rows = self._read_columns(table, partition, file, file.schema_arrow.names)
            digest = self.content_hash(table, partition)
            is_current = schema_version(rows.schema.metadata) == str(table.version)
            if digest and is_current and content_hash(rows) != digest:
                raise self._damaged(table, partition, ValueError("its rows have another hash"))

    def glob(self, table: Table) -> str:
        """Pattern of all the table's files, for DuckDB's `read_parquet`."""
        return f"{escape(self.storage.url(table.name))}/*/part-*.parquet"

    def write_schema_file(self, table: Table) -> None:
        """Write the empty typed file that makes a view valid before the first rows."""
        info = self._try_footer(table, _SCHEMA)
        if info is None or info.schema_version != str(table.version):
            empty = table.arrow_schema.empty_table()
            path = _stored_path(table, _SCHEMA)
            self.storage.write(path, encode_rows(empty, content_hash(empty)))

    def _infos(self, table: Table) -> dict[str, PartitionInfo | None]:
        """What the footers of all files say, by their folder; None: damaged or just removed."""
        return self._listing(table).infos

    def _listing(self, table: Table) -> Listing:
        listings = self._listings[-1] if self._listings else {}
        if table.name not in listings:
            files = self._files(table)
            infos = self.index.resolve(table.name, files, partial(self._try_footer, table))
            listings[table.name] = Listing(table, infos)
        return listings[table.name]

    def _write_stream(
        self, table: Table, reader: pa.RecordBatchReader, partition: str
    ) -> WriteResult:
        path = _path(table, partition)
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

    def _files(self, table: Table) -> dict[str, FileState]:
        """State of all files that a view reads, by their folder."""
        files = self.storage.files(table.name, _PART)
        return {name: state for name, state in files.items() if not name.startswith(".")}

    def _try_footer(self, table: Table, partition: str) -> PartitionInfo | None:
        """`_read_footer`; None also where it is damaged."""
        try:
            return self._read_footer(table, partition)
        except StorageError:
            return None

    def _read_footer(self, table: Table, partition: str) -> PartitionInfo | None:
        """What the partition's footer says; None: there is no such partition."""
        try:
            footer = self._open(table, partition).metadata
        except FileNotFoundError:
            return None
        try:
            metadata = footer.metadata or {}
            digest, version = metadata.get(HASH_KEY, b"").decode(), schema_version(metadata)
        except UnicodeDecodeError as error:
            raise self._damaged(table, partition, error) from error
        return PartitionInfo(digest, version, int(footer.num_rows))

    def _read_partition(
        self, table: Table, partition: str, schema: pa.Schema, where: Any
    ) -> pa.Table:
        file = self._open_checked(table, partition)
        names = names_by_stored(table, file)
        needed = schema.names if where is None else names.values()
        columns = [stored for stored, name in names.items() if name in needed]
        rows = self._read_columns(table, partition, file, columns)
        return current_rows(table, rows, names, schema, where)

    def _read_columns(
        self, table: Table, partition: str, file: pq.ParquetFile, columns: Sequence[str]
    ) -> pa.Table:
        try:
            return file.read(columns)
        except _DAMAGE as error:
            raise self._damaged(table, partition, error) from error

    def _next_batch(
        self, table: Table, partition: str, batches: Iterator[pa.RecordBatch]
    ) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except _DAMAGE as error:
            raise self._damaged(table, partition, error) from error

    def _open_checked(self, table: Table, partition: str, source: Any = None) -> pq.ParquetFile:
        file = self._open(table, partition, source)
        try:
            stored = file.schema_arrow
            expected = expected_schema(table, stored)
            version, names = schema_version(stored.metadata), current_names(table, stored)
        except _DAMAGE as error:
            raise self._damaged(table, partition, error) from error
        if version not in readable_versions(table):
            problem = f"has schema version {version}, this code reads version {table.version}"
        elif names != expected.names or stored.types != expected.types:
            problem = column_difference(names, expected.names)
        else:
            return file
        raise SchemaMismatchError(
            f"table {table.name}, partition {partition}: {problem}; materialize {table.name} "
            f"again or delete {self.storage.url(_stored_path(table, partition))}"
        )

    def _open(self, table: Table, partition: str, source: Any = None) -> pq.ParquetFile:
        """The partition as it is now (or an open file of it); it does not show replacements."""
        path = _stored_path(table, partition)
        try:
            local = self.storage.is_local
            file = source or (
                pa.OSFile(self.storage.url(path)) if local else io.BytesIO(self.storage.read(path))
            )
            return pq.ParquetFile(file, page_checksum_verification=True)
        except FileNotFoundError:
            raise
        except _DAMAGE as error:
            raise self._damaged(table, partition, error) from error

    def _damaged(self, table: Table, partition: str, error: Exception) -> StorageError:
        return StorageError(
            f"{self.storage.url(_stored_path(table, partition))} is damaged ({first_line(error)}): "
            f"`interleave verify --repair`, or delete it and materialize {table.name} again"
        )


def _in_lineage(folder: str) -> bool:
    """Whether a table's folder is a partition, and not one of users' requests."""
    return not folder.startswith(("_", "."))


def _stored_path(table: Table, partition: str) -> str:
    """`_path`, also of the empty typed file."""
    if partition == _SCHEMA:
        return f"{table.name}/{_SCHEMA}/{_PART}"
    return _path(table, partition)


def _path(table: Table, partition: str) -> str:
    prefix = REQUESTS if partition.startswith(REQUESTS) else ""
    name = safe_name(partition.removeprefix(prefix), "partition")
    return f"{table.name}/{prefix}{name}/{_PART}"
