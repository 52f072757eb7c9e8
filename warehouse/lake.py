"""The lake: tables as Parquet files, one per partition, replaced atomically."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from glob import escape
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import Row, SchemaMismatchError, StorageError, Table

from .content_hash import BATCH_ROWS, add_batch, content_hash, new_digest
from .partition_index import PartitionIndex, PartitionInfo
from .storage import FileState, Storage, first_line, safe_name

ALL = "all"
"""The partition of tables that are not sharded."""

REQUESTS = "_requests-"
"""Prefix of the partitions of users' requests: in the views, but not part of the lineage."""

_PART = "part-0.parquet"
_ROW_GROUP = 122_880  # what DuckDB scans per thread at a time
_WRITING: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
# What pyarrow raises where a checksum, the codec, the encoding, or the footer is wrong.
_DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError)
_HASH, _VERSION = b"interleave.content_hash", b"interleave.version"


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

    def write(
        self,
        table: Table,
        rows: pa.Table | pa.RecordBatchReader | Iterable[Row],
        partition: str = ALL,
    ) -> WriteResult:
        """Replace a partition, unless its content is the same.

        A reader is read batch by batch, so that only compressed rows are in memory. Arrow rows may
        lack columns of `Table.added`: they become nulls, and the content hash is that of rows of
        the version before.

        Raises:
            SchemaMismatchError: the rows do not have the table's columns and types.
            StorageError: the partition cannot be written; the old one is unchanged.
        """
        path = _path(table, partition)
        url = self.storage.url(path)
        if isinstance(rows, pa.RecordBatchReader):
            encoded, count, digest = _encode_stream(table, rows, partition)
        else:
            data = _conform(table, rows, partition)
            hashed = data.select(_given_names(table, rows)) if isinstance(rows, pa.Table) else data
            encoded, count, digest = None, data.num_rows, content_hash(hashed)
        if self.content_hash(table, partition) == digest:
            return WriteResult(count, digest, url, changed=False)
        state = self.storage.write(path, encoded or _encode(data, digest))
        if not partition.startswith(REQUESTS):
            info = PartitionInfo(digest, str(table.version), count)
            self.index.record(table.name, {partition: (state, info)})
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
        schema = table.arrow_schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
        parts = [schema.empty_table()]
        for name in self.partitions(table) if partitions is None else partitions:
            with suppress(FileNotFoundError):
                parts.append(self._read_partition(table, name, schema, where))
        return pa.concat_tables(parts)

    def is_absent(self, table: Table) -> bool:
        """Whether a table has no file at all, not even an empty one."""
        return next(self.storage.find(table.name, _PART), None) is None

    def partitions(self, table: Table) -> list[str]:
        """Sorted names of the stored partitions, without those of users' requests."""
        return sorted(self._files(table))

    def exists(self, table: Table, partition: str) -> bool:
        return self.storage.exists(_path(table, partition))

    def delete(self, table: Table, partition: str) -> None:
        """Remove a partition, if it exists."""
        self.storage.delete(_path(table, partition))

    def content_hash(self, table: Table, partition: str = ALL) -> str | None:
        """Hash of the rows as they were written; None: no partition of a readable version."""
        return _readable_hash(table, self._try_footer(table, partition))

    def content_hashes(self, table: Table) -> dict[str, str]:
        """`content_hash` of all `partitions` that have one, in their order; from the index."""
        infos = self.index.resolve(table.name, self._files(table), partial(self._try_footer, table))
        hashes = ((name, _readable_hash(table, infos[name])) for name in sorted(infos))
        return {name: digest for name, digest in hashes if digest}

    def rows(self, table: Table, partition: str | None = None) -> int:
        """Number of rows in a partition (0: missing), or in all of `partitions`; StorageError: a
        file is damaged."""
        if partition is not None:
            info = self._read_footer(table, partition)
            return info.rows if info else 0
        read_footer = partial(self._read_footer, table)
        infos = self.index.resolve(table.name, self._files(table), read_footer)
        return sum(info.rows for info in infos.values() if info)

    def check(self, table: Table) -> None:
        """Check that every partition can be read; raises what `read` does."""
        for name in self.partitions(table):
            with suppress(FileNotFoundError):
                self._open_checked(table, name)

    def glob(self, table: Table) -> str:
        """Pattern of all the table's files, for DuckDB's `read_parquet`."""
        return f"{escape(self.storage.url(table.name))}/*/part-*.parquet"

    def write_schema_file(self, table: Table) -> None:
        """Write the empty typed file that makes a view valid before the first rows."""
        path = f"{table.name}/_schema/{_PART}"
        if not self.storage.exists(path):
            empty = table.arrow_schema.empty_table()
            self.storage.write(path, _encode(empty, content_hash(empty)))

    def _files(self, table: Table) -> dict[str, FileState]:
        """Stored partitions without those of users' requests, and the state of their files."""
        files = self.storage.files(table.name, _PART)
        return {name: state for name, state in files.items() if not name.startswith(("_", "."))}

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
            digest, version = metadata.get(_HASH, b"").decode(), _version(metadata)
        except UnicodeDecodeError as error:
            raise self._damaged(table, partition, error) from error
        return PartitionInfo(digest, version, int(footer.num_rows))

    def _read_partition(
        self, table: Table, partition: str, schema: pa.Schema, where: Any
    ) -> pa.Table:
        file = self._open_checked(table, partition)
        stored = file.schema_arrow
        names = dict(zip(stored.names, _current_names(table, stored), strict=True))
        needed = schema.names if where is None else names.values()
        columns = [stored for stored, name in names.items() if name in needed]
        try:
            rows = file.read(columns)
        except _DAMAGE as error:
            raise self._damaged(table, partition, error) from error
        rows = rows.rename_columns([names[stored] for stored in rows.column_names])
        for field in (table.arrow_schema.field(name) for name in table.added):
            if field.name not in names.values():
                rows = rows.append_column(field, pa.nulls(len(rows), field.type))
        matching = rows if where is None else rows.filter(where)
        return matching.select(schema.names).cast(schema)

    def _open_checked(self, table: Table, partition: str) -> pq.ParquetFile:
        file = self._open(table, partition)
        try:
            stored = file.schema_arrow
            expected = _expected_schema(table, stored)
            version, names = _version(stored.metadata), _current_names(table, stored)
        except _DAMAGE as error:
            raise self._damaged(table, partition, error) from error
        if version not in _readable_versions(table):
            problem = f"has schema version {version}, this code reads version {table.version}"
        elif names != expected.names or stored.types != expected.types:
            problem = _difference(names, expected.names)
        else:
            return file
        raise SchemaMismatchError(
            f"table {table.name}, partition {partition}: {problem}; materialize {table.name} "
            f"again or delete {self.storage.url(_path(table, partition))}"
        )

    def _open(self, table: Table, partition: str) -> pq.ParquetFile:
        """The partition as it is now; an open file does not show later replacements."""
        path = _path(table, partition)
        try:
            local = self.storage.is_local
            file = (
                pa.OSFile(self.storage.url(path)) if local else io.BytesIO(self.storage.read(path))
            )
            return pq.ParquetFile(file, page_checksum_verification=True)
        except FileNotFoundError:
            raise
        except _DAMAGE as error:
            raise self._damaged(table, partition, error) from error

    def _damaged(self, table: Table, partition: str, error: Exception) -> StorageError:
        return StorageError(
            f"{self.storage.url(_path(table, partition))} is damaged ({first_line(error)}): "
            f"delete it and materialize {table.name} again"
        )


def _path(table: Table, partition: str) -> str:
    prefix = REQUESTS if partition.startswith(REQUESTS) else ""
    name = safe_name(partition.removeprefix(prefix), "partition")
    return f"{table.name}/{prefix}{name}/{_PART}"


def _encode(data: pa.Table, digest: str) -> bytes:
    sink = pa.BufferOutputStream()
    stamped = data.replace_schema_metadata({**(data.schema.metadata or {}), _HASH: digest})
    pq.write_table(stamped, sink, row_group_size=_ROW_GROUP, **_WRITING)
    return sink.getvalue().to_pybytes()


def _encode_stream(
    table: Table, reader: pa.RecordBatchReader, partition: str
) -> tuple[bytes, int, str]:
    """Parquet file, number of rows, content hash."""
    names = _given_names(table, reader)
    hashed = pa.schema([table.arrow_schema.field(name) for name in names])
    sink, count, digest = pa.BufferOutputStream(), 0, new_digest(hashed)
    with pq.ParquetWriter(sink, table.arrow_schema, **_WRITING) as writer:
        for part in _in_batches(reader):
            rows = _conform(table, part, partition)
            add_batch(digest, rows.select(names))
            writer.write_table(rows)
            count += rows.num_rows
        writer.add_key_value_metadata({_HASH: digest.hexdigest()})
    return sink.getvalue().to_pybytes(), count, digest.hexdigest()


def _in_batches(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The reader's rows in tables of `BATCH_ROWS`, as the content hash needs them."""
    pending = reader.schema.empty_table()
    for batch in reader:
        pending = pa.concat_tables([pending, pa.Table.from_batches([batch])])
        while pending.num_rows >= BATCH_ROWS:
            yield pending.slice(0, BATCH_ROWS)
            pending = pending.slice(BATCH_ROWS)
    if pending.num_rows:
        yield pending


def _conform(table: Table, rows: pa.Table | Iterable[Row], partition: str) -> pa.Table:
    """Rows cast to the table's schema, columns in its order."""
    if not isinstance(rows, pa.Table):
        return table.to_arrow(rows)
    schema, where = table.arrow_schema, f"{table.name}/{partition}"
    for name in table.added:
        if name not in rows.column_names:
            field = schema.field(name)
            rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    if set(rows.column_names) != set(schema.names):
        raise SchemaMismatchError(f"{where}: {_difference(rows.column_names, schema.names)}")
    nulls = [field.name for field in schema if not field.nullable and rows[field.name].null_count]
    if nulls:
        raise SchemaMismatchError(f"{where}: null in {', '.join(nulls)}, which must have a value")
    try:
        return rows.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise SchemaMismatchError(f"{where}: {first_line(error)}") from error


def _given_names(table: Table, rows: pa.Table | pa.RecordBatchReader) -> list[str]:
    """Columns of the table, without added ones that the rows lack."""
    return [n for n in table.columns if n not in table.added or n in rows.schema.names]


def _readable_hash(table: Table, info: PartitionInfo | None) -> str | None:
    """None: there is none, or the file has a version that cannot be read."""
    if info and info.schema_version in _readable_versions(table):
        return info.content_hash or None
    return None


def _version(metadata: Mapping[bytes, bytes] | None) -> str:
    return (metadata or {}).get(_VERSION, b"none").decode()


def _readable_versions(table: Table) -> tuple[str, ...]:
    """Schema versions whose rows can be read: the current one, and the one before its renames or
    additions."""
    older = bool(table.renamed or table.added)
    return tuple(map(str, range(table.version - older, table.version + 1)))


def _expected_schema(table: Table, stored: pa.Schema) -> pa.Schema:
    """Columns that a file of its version has, under today's names."""
    schema = table.arrow_schema
    if _version(stored.metadata) == str(table.version):
        return schema
    return pa.schema([field for field in schema if field.name not in table.added])


def _current_names(table: Table, stored: pa.Schema) -> list[str]:
    """Today's names of a file's columns."""
    renamed = {} if _version(stored.metadata) == str(table.version) else dict(table.renamed)
    return [renamed.get(name, name) for name in stored.names]


def _difference(names: Sequence[str], expected: Sequence[str]) -> str:
    missing = [name for name in expected if name not in names]
    unknown = [name for name in names if name not in expected]
    parts = [f"without column {', '.join(missing)}"] if missing else []
    parts += [f"with unknown column {', '.join(unknown)}"] if unknown else []
    return " and ".join(parts) or "columns of another type or order"
