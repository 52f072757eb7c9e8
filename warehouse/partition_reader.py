"""Opens partitions: files of their own, or row groups of merged files."""

import io
import os
from collections import OrderedDict
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import Table

from .merged_files import DELETED, MergedPartition, merged_file, merged_path, read_entries
from .storage import FileState, Storage, local_state, safe_name, storage_errors
from .stored_partition import DAMAGE, StoredPartition, file_damaged

REQUESTS = "_requests-"
"""Prefix of the partitions of users' requests: in the views, but not part of the lineage."""

PART = "part-0.parquet"
SCHEMA = "_schema"  # of an empty typed file
_FOOTERS = 16  # of merged files that are remembered, a megabyte or two each

_Footer = tuple[pq.FileMetaData, dict[str, MergedPartition]]


class PartitionReader:
    """Opens the partitions below a lake's root."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._footers: OrderedDict[tuple[str, FileState], _Footer] = OrderedDict()

    def open(self, table: Table, partition: str, source: Any = None) -> StoredPartition:
        """A partition as it is now (or an open file of it).

        Raises:
            FileNotFoundError: there is none.
            StorageError: its file is damaged or cannot be read.
        """
        path = stored_path(table, partition)
        try:
            file = self._parquet(source or self._source(path))
        except FileNotFoundError:
            # In this order: a partition is in the merged file before its own file is deleted.
            return self._open_merged(table, partition)
        except DAMAGE as error:
            raise file_damaged(table, self._storage.url(path), error) from error
        return StoredPartition(table, partition, path, self._storage.url(path), file)

    def entries(self, table: Table, file: str) -> dict[str, StoredPartition]:
        """All partitions of a merged file, also those that it no longer stands for; raises as
        `open`."""
        path = merged_path(table, file)
        url = self._storage.url(path)
        try:
            opened, (_, entries) = self._open_footer(path)
        except FileNotFoundError:
            raise
        except (*DAMAGE, ValueError, KeyError, TypeError) as error:
            raise file_damaged(table, url, error, merged=True) from error
        return {
            name: StoredPartition(table, name, path, url, opened, entry)
            for name, entry in entries.items()
        }

    def _open_merged(self, table: Table, partition: str) -> StoredPartition:
        name = merged_file(table, partition)
        stored = self.entries(table, name).get(partition) if name else None
        if stored is None or self._storage.exists(deleted_path(table, partition)):
            raise FileNotFoundError(self._storage.url(stored_path(table, partition)))
        return stored

    def _open_footer(self, path: str) -> tuple[pq.ParquetFile, _Footer]:
        source, state = self._versioned_source(path)
        known = self._footers.pop((path, state), None) if state.version else None
        opened = self._parquet(source, known[0] if known else None)
        footer = known or (opened.metadata, read_entries(opened.metadata))
        self._footers[path, state] = footer
        while len(self._footers) > _FOOTERS:
            with suppress(KeyError):  # another thread was first
                self._footers.popitem(last=False)
        return opened, footer

    def _versioned_source(self, path: str) -> tuple[Any, FileState]:
        """An open file that is not read as a whole, and the state of just this file."""
        with storage_errors("read", self._storage.url(path)):
            if self._storage.is_local:
                file = pa.OSFile(self._storage.url(path))
                return file, local_state(os.fstat(file.fileno()))
            remote = self._storage.fs.open(f"{self._storage.root}/{path}", cache_type="none")
            details = getattr(remote, "details", None) or {}
            return remote, FileState(int(remote.size), str(details.get("ETag") or ""))

    def _source(self, path: str) -> Any:
        if self._storage.is_local:
            return pa.OSFile(self._storage.url(path))
        return io.BytesIO(self._storage.read(path))

    def _parquet(self, source: Any, footer: pq.FileMetaData | None = None) -> pq.ParquetFile:
        # Few large requests to an object store instead of one for each column.
        few = not self._storage.is_local
        return pq.ParquetFile(
            source, metadata=footer, page_checksum_verification=True, pre_buffer=few
        )


def stored_path(table: Table, partition: str) -> str:
    """`own_path`, also of the empty typed file."""
    return f"{table.name}/{SCHEMA}/{PART}" if partition == SCHEMA else own_path(table, partition)


def own_path(table: Table, partition: str) -> str:
    """Path of a partition's own file."""
    return f"{_folder(table, partition)}/{PART}"


def deleted_path(table: Table, partition: str) -> str:
    return f"{_folder(table, partition)}/{DELETED}"


def _folder(table: Table, partition: str) -> str:
    prefix = REQUESTS if partition.startswith(REQUESTS) else ""
    name = safe_name(partition.removeprefix(prefix), "partition")
    return f"{table.name}/{prefix}{name}"
