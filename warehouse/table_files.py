"""How rows become the Parquet file of a partition, and which files and rows a table accepts.

A file says in its footer which version of the table's schema it has, and the hash of its content.
Files of the version before are read where only columns were renamed or added since.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import Row, SchemaMismatchError, Table

from .checksums import PARQUET_KEY, UNSEALED, seal_parquet
from .content_hash import ContentHash
from .partition_index import PartitionInfo
from .storage import first_line, storage_errors

ROW_GROUP = 122_880  # what DuckDB scans per thread at a time
_STREAM_ROWS, _STREAM_BYTES = 65_536, 64_000_000  # of a row group that is written from a stream
WRITING: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
HASH_KEY, _VERSION_KEY = b"interleave.content_hash", b"interleave.version"


def encode_rows(data: pa.Table, digest: str) -> bytes:
    sink = io.BytesIO()
    stamped = data.replace_schema_metadata({**(data.schema.metadata or {}), HASH_KEY: digest})
    with pq.ParquetWriter(sink, stamped.schema, **WRITING) as writer:
        writer.write_table(stamped, row_group_size=ROW_GROUP)
        writer.add_key_value_metadata({PARQUET_KEY: UNSEALED})
    seal_parquet(sink)
    return sink.getvalue()


def encode_stream(
    table: Table, reader: pa.RecordBatchReader, partition: str, file: Path
) -> tuple[int, str]:
    """Write a Parquet file; returns the number of rows and the content hash."""
    names = given_names(table, reader)
    count, digest = 0, ContentHash(pa.schema([table.arrow_schema.field(name) for name in names]))
    with pq.ParquetWriter(file, table.arrow_schema, **WRITING) as writer:
        for part in in_row_groups(reader):
            rows = conform_rows(table, part, partition)
            digest.add(rows.select(names))
            with storage_errors("written", file):
                writer.write_table(rows)
            count += rows.num_rows
            del part, rows
            pa.default_memory_pool().release_unused()
        writer.add_key_value_metadata({HASH_KEY: digest.hexdigest(), PARQUET_KEY: UNSEALED})
    with storage_errors("written", file), file.open("r+b") as written:
        seal_parquet(written)
    return count, digest.hexdigest()


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


def selected_schema(table: Table, columns: Sequence[str] | None) -> pa.Schema:
    """The table's schema, or that of some columns in their order."""
    schema = table.arrow_schema
    if columns is None:
        return schema
    return pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)


def names_by_stored(table: Table, stored: pa.Schema) -> dict[str, str]:
    """Today's names of a file's columns, by those in the file."""
    return dict(zip(stored.names, current_names(table, stored), strict=True))


def current_rows(
    table: Table, rows: pa.Table, names: Mapping[str, str], schema: pa.Schema, where: Any = None
) -> pa.Table:
    """Stored rows under today's names, with the columns of `schema`, that satisfy `where`."""
    rows = rows.rename_columns([names[stored] for stored in rows.column_names])
    for added in (table.arrow_schema.field(name) for name in table.added):
        if added.name not in names.values():
            rows = rows.append_column(added, pa.nulls(len(rows), added.type))
    matching = rows if where is None else rows.filter(where)
    return matching.select(schema.names).cast(schema)


def conform_rows(table: Table, rows: pa.Table | Iterable[Row], partition: str) -> pa.Table:
    """Rows cast to the table's schema, columns in its order."""
    if not isinstance(rows, pa.Table):
        return table.to_arrow(rows)
    schema, where = table.arrow_schema, f"{table.name}/{partition}"
    for name in table.added:
        if name not in rows.column_names:
            added = schema.field(name)
            rows = rows.append_column(added, pa.nulls(len(rows), added.type))
    if set(rows.column_names) != set(schema.names):
        raise SchemaMismatchError(f"{where}: {column_difference(rows.column_names, schema.names)}")
    nulls = [field.name for field in schema if not field.nullable and rows[field.name].null_count]
    if nulls:
        raise SchemaMismatchError(f"{where}: null in {', '.join(nulls)}, which must have a value")
    try:
        return rows.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise SchemaMismatchError(f"{where}: {first_line(error)}") from error


def given_names(table: Table, rows: pa.Table | pa.RecordBatchReader) -> list[str]:
    """Columns of the table, without added ones that the rows lack."""
    return [n for n in table.columns if n not in table.added or n in rows.schema.names]


def readable_hash(table: Table, info: PartitionInfo | None) -> str | None:
    """None: there is none, or the file has a version that cannot be read."""
    if info and info.schema_version in readable_versions(table):
        return info.content_hash or None
    return None


def schema_version(metadata: Mapping[bytes, bytes] | None) -> str:
    return (metadata or {}).get(_VERSION_KEY, b"none").decode()


def readable_versions(table: Table) -> tuple[str, ...]:
    """Schema versions whose rows can be read: the current one, and the one before its renames or
    additions."""
    older = bool(table.renamed or table.added)
    return tuple(map(str, range(table.version - older, table.version + 1)))


def expected_schema(table: Table, stored: pa.Schema) -> pa.Schema:
    """Columns that a file of its version has, under today's names."""
    schema = table.arrow_schema
    if schema_version(stored.metadata) == str(table.version):
        return schema
    return pa.schema([field for field in schema if field.name not in table.added])


def current_names(table: Table, stored: pa.Schema) -> list[str]:
    """Today's names of a file's columns."""
    renamed = {} if schema_version(stored.metadata) == str(table.version) else dict(table.renamed)
    return [renamed.get(name, name) for name in stored.names]


def column_difference(names: Sequence[str], expected: Sequence[str]) -> str:
    missing = [name for name in expected if name not in names]
    unknown = [name for name in names if name not in expected]
    parts = [f"without column {', '.join(missing)}"] if missing else []
    parts += [f"with unknown column {', '.join(unknown)}"] if unknown else []
    return " and ".join(parts) or "columns of another type or order"
