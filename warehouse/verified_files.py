"""Table files that were verified: before a query, each is read as a whole once.

DuckDB has no option to check checksums. Files of an object store are not read here: the store
verifies its own, and a query would download more than it needs; `interleave verify` reads them.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from schemas import StorageError, Table

from .home import Home
from .sqlite_file import SqliteFile

_THREADS = min(8, os.cpu_count() or 1)
_CREATE_TABLE = (
    "CREATE TABLE IF NOT EXISTS verified (file TEXT PRIMARY KEY, size INTEGER, modified INTEGER)"
)
_State = tuple[str, int, int]  # path, size in bytes, time of the last change in nanoseconds


def verify_before_query(home: Home, tables: Sequence[Table]) -> None:
    """Verify the files of some tables that have changed since they were last verified.

    What was verified is in `verified.sqlite`; without it (a home that cannot be written), all are.

    Raises:
        SchemaMismatchError, StorageError: a file is damaged, or its schema cannot be read.
    """
    if not home.lake.storage.is_local:
        for table in tables:
            home.lake.check(table)
        return
    memory = SqliteFile(home.local / "verified.sqlite", [(_CREATE_TABLE,)], durable=False)
    states = {
        state: (table, partition) for table in tables for partition, state in _states(home, table)
    }
    known = _known(memory, home, tables)
    changed = [state for state in states if state not in known]
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda state: _verify(home, *states[state]), changed))
    _remember(memory, changed)


def _states(home: Home, table: Table) -> Iterator[tuple[str, _State]]:
    for partition in home.lake.all_partitions(table):
        file = home.lake.file(table, partition)
        with suppress(FileNotFoundError):
            stat = Path(file).stat()
            yield partition, (file, stat.st_size, stat.st_mtime_ns)


def _verify(home: Home, table: Table, partition: str) -> None:
    with suppress(FileNotFoundError):
        home.lake.verify(table, partition)


def _known(memory: SqliteFile, home: Home, tables: Sequence[Table]) -> set[_State]:
    if not memory.path.exists():
        return set()
    known: set[_State] = set()
    with suppress(StorageError), memory.transaction() as connection:
        for table in tables:
            folder = home.lake.storage.url(table.name)
            sql = "SELECT * FROM verified WHERE file > ? || '/' AND file < ? || '0'"  # '0': '/' + 1
            known.update(connection.execute(sql, (folder, folder)))
    return known


def _remember(memory: SqliteFile, states: Sequence[_State]) -> None:
    if not states:
        return
    with suppress(StorageError), memory.transaction() as connection:
        connection.executemany("INSERT OR REPLACE INTO verified VALUES (?, ?, ?)", states)
