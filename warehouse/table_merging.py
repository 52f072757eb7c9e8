"""Merges the small table files of finished shards, see `merged_files.py`.

A merged file is complete and under its name before the files of its partitions are deleted, and
these win over it, so that a kill at any moment loses nothing. It is replaced by a rename when more
shards are finished, so that a partition is in one merged file at most.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from schemas import FoundryError, Table

from .compaction import JOURNALS, finished_shards, maintenance_lock
from .home import Home
from .lake import Lake
from .merged_files import DELETED, MERGED_TABLES, merged_file, merged_path, write_merged
from .partition_reader import deleted_path, own_path
from .storage import FileState
from .stored_partition import StoredPartition
from .views import refresh_views

_SMALL = 8 * 2**20  # bytes of a file that is merged
_MAX_BYTES = 128 * 2**20  # of what is merged into one file
_DEAD_SHARE = 0.3  # of a merged file's rows, above which it is written again


@dataclass(frozen=True)
class MergedFile:
    """A merged file that was written, or would be.

    Args:
        partitions: how many files it takes the place of.
        bytes: of these.
    """

    table: str
    name: str
    partitions: int
    bytes: int


@dataclass
class _Group:
    """A merged file of a table: the partitions that stay in it, and the files that join them."""

    table: Table
    name: str
    files: dict[str, FileState] = field(default_factory=dict)
    merged: dict[str, StoredPartition] = field(default_factory=dict)
    dead_rows: int = 0

    @property
    def is_due(self) -> bool:
        rows = sum(each.info.rows for each in self.merged.values())
        if self.dead_rows > _DEAD_SHARE * (rows + self.dead_rows):
            return True
        return bool(self.files) and len(self.files) + len(self.merged) > 1

    @property
    def bytes(self) -> int:
        return sum(state.size for state in self.files.values())


def merge_tables(home: Home, dry_run: bool = False) -> Iterator[MergedFile]:
    """Merge the small table files of finished shards, up to a hundred shards into a file a table.

    What a run replaces meanwhile stays as the run wrote it. Yields the merged files that were
    written.

    Raises:
        StorageError: another process compacts this home or removes garbage from it, or it cannot be
            read or written.
    """
    with maintenance_lock(home):
        shards = list(finished_shards(home))
        has_views = dry_run
        for table in MERGED_TABLES:
            for group in _groups(home.lake, table, shards):
                if not has_views:
                    _prepare_views(home)
                    has_views = True
                if not dry_run:
                    _merge(home.lake, group)
                yield MergedFile(table.name, group.name, len(group.files), group.bytes)
            if not dry_run:
                _forget_deleted(home.lake, table)


def _prepare_views(home: Home) -> None:
    """Views that read merged files, and own files for them where all are merged."""
    for table in MERGED_TABLES:
        home.lake.write_schema_file(table)
    if home.warehouse.exists():
        refresh_views(home)


def _groups(lake: Lake, table: Table, shards: list[str]) -> Iterator[_Group]:
    """The merged files of a table that have to be written."""
    files: dict[str, dict[str, FileState]] = defaultdict(dict)
    for name, state in lake.own_files(table).items():
        file = merged_file(table, name)
        if file and state.size < _SMALL:
            files[file][name] = state
    finished = {*shards, *(f"{asset}-{shard}" for asset in JOURNALS for shard in shards)}
    stored = lake.merged_files(table)
    for name in sorted(files.keys() | stored.keys()):
        group = _Group(table, name)
        size = stored[name].size if name in stored else 0
        if name in stored and not _add_merged(lake, group):
            continue
        for partition, state in sorted(files[name].items()):
            fits = partition in finished and size + state.size <= _MAX_BYTES
            if fits and _can_be_merged(lake, table, partition):
                group.files[partition] = state
                size += state.size
        if group.is_due:
            yield group


def _add_merged(lake: Lake, group: _Group) -> bool:
    """Note what is merged already; False: that stays as it is, for it has an older schema."""
    everything = lake.merged_partitions(group.table, group.name, hidden=True)
    group.merged = lake.merged_partitions(group.table, group.name)
    rows = sum(each.info.rows for each in everything.values())
    group.dead_rows = rows - sum(each.info.rows for each in group.merged.values())
    version = str(group.table.version)
    return all(each.info.schema_version == version for each in group.merged.values())


def _merge(lake: Lake, group: _Group) -> None:
    path = merged_path(group.table, group.name)
    with lake.storage.draft(path) as draft:
        entries = write_merged(draft, group.table, _partitions(lake, group))
        if not entries:
            lake.storage.delete_all([path])
            return
        lake.storage.put(path, draft)
    if state := lake.storage.state(path):
        lake.index.record_merged(group.table.name, group.name, state, entries)
    for name in group.files.keys() & entries.keys():
        _delete_own(lake, group.table, name, group.files[name], entries[name].content_hash)


def _can_be_merged(lake: Lake, table: Table, partition: str) -> bool:
    """Whether a file has the current schema, a hash, and no damage, which `verify` names."""
    with suppress(FoundryError, FileNotFoundError):
        lake.verify(table, partition)
        info = lake.open(table, partition).info
        return bool(info.content_hash) and info.schema_version == str(table.version)
    return False


def _partitions(lake: Lake, group: _Group) -> Iterator[tuple[str, str, pa.Table]]:
    """Name, content hash and rows of what goes into a merged file."""
    schema = group.table.arrow_schema
    for name in sorted(group.files.keys() | group.merged.keys()):
        with suppress(FileNotFoundError):  # deleted meanwhile
            stored = group.merged.get(name) or lake.open(group.table, name)
            yield name, stored.info.content_hash, stored.read(schema.names).cast(schema)


def _delete_own(lake: Lake, table: Table, name: str, state: FileState, digest: str) -> None:
    """Delete the file of a partition that was merged, unless a run has replaced it."""
    path = own_path(table, name)
    with lake.storage.locked(exclusive=True):
        # The hash as well: not every file system tells versions of a size apart.
        if lake.storage.state(path) == state and lake.content_hash(table, name) == digest:
            lake.storage.delete_all([deleted_path(table, name)])
            lake.storage.delete_if(path, state)


def _forget_deleted(lake: Lake, table: Table) -> None:
    """Remove the marks of deleted partitions that no merged file has."""
    marked = set(lake.storage.find(table.name, DELETED))
    if not marked:
        return
    for name in lake.merged_files(table):
        marked -= lake.merged_partitions(table, name, hidden=True).keys()
    for name in marked:
        with lake.storage.locked(exclusive=True):
            lake.storage.delete(deleted_path(table, name))
