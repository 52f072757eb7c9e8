"""SQLite files of a home that several processes and threads share.

SQLite notices damage of its structure, but none inside a value. So triggers keep a checksum of
every row, and one of the schema, in table `row_checksums`; `differing_rows` compares.
"""

import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from schemas import StorageError

Migration = tuple[str, ...] | Callable[[sqlite3.Connection], object]

_BUSY_SECONDS = 30
_CHECKSUMS = "row_checksums"
_CREATE_CHECKSUMS = f"""
    CREATE TABLE {_CHECKSUMS} (name TEXT, row INTEGER, checksum INTEGER, PRIMARY KEY (name, row))
    WITHOUT ROWID
"""
_SCHEMA_SQL = (
    "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
)
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class SqliteFile:
    """A SQLite file, created by its first use; every use is one transaction.

    Args:
        migrations: SQL statements or functions; number N brings a file from `user_version` N to
            N + 1. Files without a version are those of version 0, so the first one must accept
            both an empty file and the tables that it creates.
        fast_commits: write-ahead log, and one connection until `close`: a commit does not wait for
            the disk, so that a power cut (but no kill) may lose the last ones.
        durable: False: a power cut (but no kill) may damage the file; for what can be made again,
            which has no checksums of rows either.
    """

    def __init__(
        self,
        path: Path,
        migrations: Sequence[Migration],
        fast_commits: bool = False,
        durable: bool = True,
    ) -> None:
        self.path = path
        self._migrations, self._fast_commits, self._durable = migrations, fast_commits, durable
        self._lock = threading.Lock()
        self._shared: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else writes in; an exception rolls it back.

        Raises:
            StorageError: the file is damaged, of a newer version, or cannot be read or written.
        """
        with _storage_errors(self.path):
            if not self._fast_commits:
                with closing(self._connect()) as connection, _transaction(connection):
                    yield connection
                return
            with self._lock:
                self._shared = self._shared or self._connect()
                with _transaction(self._shared):
                    yield self._shared

    def close(self) -> None:
        """Close the connection that `fast_commits` keeps; the next use opens another."""
        with self._lock, _storage_errors(self.path):
            if self._shared:
                self._shared.close()
                self._shared = None

    def remove(self) -> None:
        """Delete the file, as far as that is possible; the next use creates another."""
        with suppress(StorageError):
            self.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                self.path.with_name(f"{self.path.name}{suffix}").unlink()

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            self.path, _BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
        connection.execute("PRAGMA recursive_triggers = ON")  # for the rows that REPLACE deletes
        try:
            if self._fast_commits:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
            if not self._durable:
                connection.execute("PRAGMA synchronous = OFF")
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        newest = len(self._migrations)
        lacks_checksums = self._durable and not _has_checksums(connection)
        if _version(connection) < newest or (_version(connection) == newest and lacks_checksums):
            with _transaction(connection):
                for migration in self._migrations[_version(connection) :]:
                    if callable(migration):
                        migration(connection)
                        continue
                    for statement in migration:
                        connection.execute(statement)
                if self._durable:
                    _drop_checksums(connection)
                    _add_checksums(connection)
                connection.execute(f"PRAGMA user_version = {newest}")
        if (version := _version(connection)) > newest:
            raise StorageError(
                f"{self.path} has version {version}, this code reads up to {newest}: update "
                "Interleave Foundry, or move the file away"
            )


def row_checksum(*values: object) -> int:
    """CRC-32 of a row's values and their types."""
    return zlib.crc32(repr(values).encode())


def differing_rows(connection: sqlite3.Connection) -> list[str]:
    """What is not as it was written, at most one line a table; none in a file without checksums."""
    if not _has_checksums(connection):
        return []
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    stored = f"SELECT checksum FROM {_CHECKSUMS} WHERE name = '' AND row = 0"
    if connection.execute(stored).fetchone() != (_schema_checksum(connection),):
        return ["its schema is not as it was written"]
    problems = []
    for table, columns in _tables(connection):
        query = (
            f"SELECT count(*) FROM (SELECT rowid AS row, row_checksum({columns}) AS now "
            f'FROM "{table}") FULL JOIN (SELECT row, checksum FROM {_CHECKSUMS} WHERE name = ?) '
            "USING (row) WHERE now IS NOT checksum"
        )
        if count := connection.execute(query, (table,)).fetchone()[0]:
            problems.append(f"{count} rows of {table} are not as they were written")
    return problems


def _has_checksums(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(query, (_CHECKSUMS,)).fetchone() is not None


def _add_checksums(connection: sqlite3.Connection) -> None:
    """Checksums of all rows, and triggers that update them; the rows of today are believed."""
    connection.execute(_CREATE_CHECKSUMS)
    for table, columns in _tables(connection):
        new = ", ".join(f"new.{column}" for column in columns.split(", "))
        insert = f"INSERT OR REPLACE INTO {_CHECKSUMS}"
        add = f"{insert} VALUES ('{table}', new.rowid, row_checksum({new}));"
        remove = f"DELETE FROM {_CHECKSUMS} WHERE name = '{table}' AND row = old.rowid;"
        for event, body in (("INSERT", add), ("UPDATE", remove + add), ("DELETE", remove)):
            connection.execute(
                f'CREATE TRIGGER {_CHECKSUMS}_{table}_{event} AFTER {event} ON "{table}" '
                f"BEGIN {body} END"
            )
        connection.execute(
            f"{insert} SELECT '{table}', rowid, row_checksum({columns}) FROM \"{table}\""
        )
    schema = (_schema_checksum(connection),)
    connection.execute(f"INSERT OR REPLACE INTO {_CHECKSUMS} VALUES ('', 0, ?)", schema)


def _drop_checksums(connection: sqlite3.Connection) -> None:
    triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB ? || '_*'"
    for (name,) in connection.execute(triggers, (_CHECKSUMS,)).fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute(f"DROP TABLE IF EXISTS {_CHECKSUMS}")


def _tables(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Names of the tables that have checksums, each with its columns, separated by commas."""
    listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    names = [n for (n,) in listed.fetchall() if n != _CHECKSUMS and not n.startswith("sqlite_")]
    return [
        (
            name,
            ", ".join(f'"{row[1]}"' for row in connection.execute(f'PRAGMA table_info("{name}")')),
        )
        for name in names
    ]


def _schema_checksum(connection: sqlite3.Connection) -> int:
    return row_checksum(*connection.execute(_SCHEMA_SQL).fetchall())


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        yield


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        quoted = isinstance(error, UnicodeDecodeError)  # a message or value of a damaged file
        if quoted or getattr(error, "sqlite_errorname", "").startswith(_DAMAGED):
            raise StorageError(
                f"{path} is damaged ({error}): move it away and start again; a new one is created, "
                "without what this one had"
            ) from error
        raise StorageError(f"{path} cannot be used: {error}") from error
