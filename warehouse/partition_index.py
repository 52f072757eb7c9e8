"""Content hashes and row counts of all partitions, without opening their files.

A local SQLite file has a row for each stored file: what its footer says, with the size and version
(time of modification, or ETag) of the file that said so. One listing of a table shows which rows
are still right; for others the footer is read. Nothing depends on the index file: deleted, damaged
or from another version of the code, it is made again.
"""

import sqlite3
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from schemas import StorageError

from .sqlite_file import SqliteFile
from .storage import FileState

T = TypeVar("T")

_CREATE = (
    "CREATE TABLE partitions (table_name TEXT, partition TEXT, size INTEGER, file_version TEXT, "
    "content_hash TEXT, schema_version TEXT, rows INTEGER, checksum INTEGER, "
    "PRIMARY KEY (table_name, partition)) WITHOUT ROWID",
)
_SELECT = "SELECT * FROM partitions WHERE table_name = ?"
_INSERT = "INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class PartitionInfo(NamedTuple):
    """What the footer of a partition's file says; `content_hash` is empty in files without one."""

    content_hash: str
    schema_version: str
    rows: int


_Known = tuple[FileState, PartitionInfo]


class PartitionIndex:
    """The index at `path`; None (lakes in memory): nothing is remembered."""

    def __init__(self, path: Path | None) -> None:
        self._file = SqliteFile(path, _CREATE, durable=False) if path else None

    def resolve(
        self,
        table: str,
        files: Mapping[str, FileState],
        read_footer: Callable[[str], PartitionInfo | None],
    ) -> dict[str, PartitionInfo | None]:
        """What the files of a table (partition -> state) say; None where `read_footer` says so."""
        known = self._known(table)
        resolved: dict[str, PartitionInfo | None] = {}
        new: dict[str, _Known] = {}
        for partition, state in files.items():
            entry = known.get(partition)
            if entry and entry[0] == state and state.version:
                resolved[partition] = entry[1]
                continue
            resolved[partition] = info = read_footer(partition)
            if info:
                new[partition] = state, info
        if new:
            self.record(table, new)
        return resolved

    def record(self, table: str, entries: Mapping[str, _Known]) -> None:
        """Remember what the footers of some partitions say, and of which files."""
        rows = [(table, name, *state, *info) for name, (state, info) in entries.items()]
        stamped = [(*row, _checksum(row)) for row in rows]
        self._use(lambda connection: connection.executemany(_INSERT, stamped))

    def _known(self, table: str) -> dict[str, _Known]:
        rows = self._use(lambda connection: connection.execute(_SELECT, (table,)).fetchall())
        return {
            row[1]: (FileState(*row[2:4]), PartitionInfo(*row[4:7]))
            for row in rows or ()
            if row[7] == _checksum(row[:7])
        }

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """The result of `work` in a transaction; None where the index cannot be used."""
        if self._file is None:
            return None
        try:
            with self._file.transaction() as connection:
                return work(connection)
        except StorageError:
            self._file.remove()
            return None


def _checksum(row: tuple[object, ...]) -> int:
    """SQLite's pages have none: a flipped bit would be another content hash."""
    return zlib.crc32(repr(row).encode())
