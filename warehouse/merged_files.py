"""Merged files: the small partitions of up to a hundred shards in one Parquet file.

`<table>/_merged/sketchbook-00.parquet` has the shards `sketchbook-0000` to `sketchbook-0099`: which
file a partition may be in follows from its name, so it is never in two. A partition is one or more
row groups, which no other shares; the footer says which, with the content hash. A column names the
partition, for readers that know nothing of the footer.

A partition's own file wins over a merged one, and so does the empty file that says that it was
deleted: to replace or delete a partition, the merged file need not be written again.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from schemas import Table
from schemas.prompts import PROMPTS
from schemas.trajectories import (
    ATTEMPTS,
    MEMBER_SCORES,
    MODEL_CALLS,
    PLANS,
    QUARANTINE,
    SCORES,
    TRAJECTORIES,
)

from .checksums import PARQUET_KEY, UNSEALED, seal_parquet
from .partition_index import PartitionInfo
from .table_files import ROW_GROUP, WRITING, schema_version

MERGED_TABLES = (
    *(PROMPTS, PLANS, TRAJECTORIES, ATTEMPTS),
    *(SCORES, MEMBER_SCORES, MODEL_CALLS, QUARANTINE),
)
"""Tables whose partitions are merged: those that the work on a shard writes."""

MERGED_NAMES = frozenset(table.name for table in MERGED_TABLES)

MERGED = "_merged"
DELETED = "part-deleted.parquet"
"""Name of the empty file that marks a partition as deleted; views see it as its own file."""

PARTITION_COLUMN = "_partition"
_KEY = b"interleave.partitions"
_GROUPED = re.compile(r"([A-Za-z0-9][\w.-]*-\d+)\d\d")


class MergedPartition(NamedTuple):
    """A partition in a merged file: the hash and number of its rows, and which row groups."""

    content_hash: str
    rows: int
    first_group: int
    groups: int


def merged_file(table: Table, partition: str) -> str | None:
    """Name of the merged file that a partition may be in; None: it is never merged."""
    match = _GROUPED.fullmatch(partition) if table.name in MERGED_NAMES else None
    return f"{match[1]}.parquet" if match else None


def merged_path(table: Table, file: str) -> str:
    return f"{table.name}/{MERGED}/{file}"


def read_entries(footer: pq.FileMetaData) -> dict[str, MergedPartition]:
    """The partitions of a merged file; ValueError: it does not say."""
    listed = orjson.loads((footer.metadata or {})[_KEY])
    return {name: MergedPartition(*values) for name, *values in listed}


def entry_info(footer: pq.FileMetaData, entry: MergedPartition) -> PartitionInfo:
    return PartitionInfo(entry.content_hash, schema_version(footer.metadata), entry.rows)


def write_merged(
    file: Path, table: Table, partitions: Iterable[tuple[str, str, pa.Table]]
) -> dict[str, PartitionInfo]:
    """Write a merged file of (name, content hash, rows in the table's schema)."""
    schema = table.arrow_schema.append(pa.field(PARTITION_COLUMN, pa.string(), nullable=False))
    listed: list[tuple[str, str, int, int, int]] = []
    with pq.ParquetWriter(file, schema, **WRITING) as writer:
        group = 0
        for name, digest, rows in partitions:
            names = pa.repeat(name, len(rows))
            writer.write_table(rows.append_column(schema.field(PARTITION_COLUMN), names), ROW_GROUP)
            groups = max(1, -(-len(rows) // ROW_GROUP))
            listed.append((name, digest, len(rows), group, groups))
            group += groups
        writer.add_key_value_metadata({_KEY: orjson.dumps(listed), PARQUET_KEY: UNSEALED})
    with file.open("r+b") as written:
        seal_parquet(written)
    version = str(table.version)
    return {name: PartitionInfo(digest, version, count) for name, digest, count, *_ in listed}
