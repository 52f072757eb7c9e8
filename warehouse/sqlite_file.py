"""SQLite files of a home that several processes and threads share.

`PRAGMA integrity_check` notices damage of a file's structure, but none inside a value. So every
table has an index of checksums of its rows, which it compares with the rows, and the header has one
of the schema (`application_id`).
"""

import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from schemas import StorageError

_BUSY_SECONDS = 30
_SCHEMA_SQL = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class SqliteFile:
    """A SQLite file, created by its first use; every use is one transaction.

    Args:
        tables: SQL statements that create its tables; their hash is its `user_version`.
        fast_commits: write-ahead log, and one connection until `close`: a commit does not wait for
            the disk, so that a power cut (but no kill) may lose the last ones.
        durable: False: a power cut (but no kill) may damage the file; for what can be made again,
            whose values are not verified either, and which is emptied if another version made it.
    """

    def __init__(
        self, path: Path, tables: Sequence[str], fast_commits: bool = False, durable: bool = True
    ) -> None:
        self.path = path
        self._tables, self._fast_commits, self._durable = tables, fast_commits, durable
        self._lock = threading.Lock()
        self._shared: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else writes in; an exception rolls it back.

        Raises:
            StorageError: the file is damaged, of another version, or cannot be read or written.
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
        _add_function(connection)
        try:
            if self._fast_commits:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
            if not self._durable:
                connection.execute("PRAGMA synchronous = OFF")
            self._create_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _create_tables(self, connection: sqlite3.Connection) -> None:
        expected = _checksum(list(self._tables))
        if _version(connection) == expected:
            return
        with _transaction(connection):
            if _version(connection) == expected:  # another process was first
                return
            for table in _table_names(connection):
                if self._durable:
                    raise StorageError(
                        f"{self.path} was made by another version of Interleave Foundry: move it "
                        "away and start again; a new one is created, without what this one had"
                    )
                connection.execute(f'DROP TABLE "{table}"')
            for statement in self._tables:
                connection.execute(statement)
            if self._durable:
                _add_checksums(connection)
            connection.execute(f"PRAGMA user_version = {expected}")


def find_damage(connection: sqlite3.Connection) -> list[str]:
    """What is not as it was written; in files without checksums, no changed values."""
    _add_function(connection)
    rows = connection.execute("PRAGMA integrity_check(3)").fetchall()
    stored = connection.execute("PRAGMA application_id").fetchone()[0]
    if stored not in (0, _schema_checksum(connection)):
        return ["its schema is not as it was written"]
    return [text for (text,) in rows if text != "ok"]


def _add_function(connection: sqlite3.Connection) -> None:
    connection.create_function("row_checksum", -1, _row_checksum, deterministic=True)


def _row_checksum(*values: object) -> int:
    """CRC-32 of a row's values and their types."""
    return zlib.crc32(repr(values).encode())


def _add_checksums(connection: sqlite3.Connection) -> None:
    """An index for each table; the rows of today are believed."""
    for table in _table_names(connection):
        info = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        columns = ", ".join(f'"{column[1]}"' for column in info)
        connection.execute(
            f'CREATE INDEX "{table}_checksums" ON "{table}" (row_checksum({columns}))'
        )
    connection.execute(f"PRAGMA application_id = {_schema_checksum(connection)}")


def _table_names(connection: sqlite3.Connection) -> list[str]:
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in names.fetchall()]


def _schema_checksum(connection: sqlite3.Connection) -> int:
    return _checksum(connection.execute(_SCHEMA_SQL).fetchall())


def _checksum(value: object) -> int:
    return zlib.crc32(repr(value).encode()) & 0x7FFFFFFF  # the header's numbers have a sign


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
