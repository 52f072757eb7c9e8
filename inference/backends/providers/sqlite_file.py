"""A small SQLite file that all processes of a home share; every use is one transaction."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

_BUSY_SECONDS = 30


class SqliteFile:
    """The file.

    Args:
        tables: statements that make its tables where they are not there yet.
    """

    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        self._path, self._tables = path, tables

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other process writes in between; undone by an exception."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, _BUSY_SECONDS, isolation_level=None)) as books:
            books.execute("BEGIN IMMEDIATE")
            with books:
                for statement in self._tables:
                    books.execute(statement)
                yield books
