"""Which pack an image is in: a local SQLite file, made from the footers of the packs.

It is a cache of some 50 bytes an image, brought up to date by listing the packs and reading the
footers of new ones; packs never change, they come and go. A lookup reads a few pages of the file,
however many images there are.
"""

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from schemas import StorageError

from .image_pack import PACK, read_ranges
from .sqlite_file import SqliteFile
from .storage import Storage

_TABLES = (
    "CREATE TABLE packs (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    # An image may be in two packs while one of them is rewritten.
    """
    CREATE TABLE images (
        sha256 BLOB NOT NULL,
        pack INTEGER NOT NULL,
        start INTEGER NOT NULL,
        length INTEGER NOT NULL,
        PRIMARY KEY (sha256, pack)
    ) WITHOUT ROWID
    """,
)
_FIND = """
SELECT name, start, length FROM images JOIN packs ON pack = number WHERE sha256 = ?
"""


class ImagePlace(NamedTuple):
    """A range of bytes of a pack."""

    pack: str
    offset: int
    length: int


class PackIndex:
    """The images in the packs of a folder; safe for several threads and processes.

    Args:
        packs: the folder of the packs.
        cache: the SQLite file; one that is damaged, or of another version, is made again.
    """

    def __init__(self, packs: Storage, cache: Path) -> None:
        self.packs, self._path = packs, cache
        self._file = SqliteFile(cache, _TABLES, durable=False)
        self._listed: object = None  # what the folder looked like when it was last listed
        self._is_empty = True
        self._refreshing = threading.Lock()
        self._connections = threading.local()

    def __reduce__(self) -> tuple[type["PackIndex"], tuple[Storage, Path]]:
        return PackIndex, (self.packs, self._path)

    def find(self, sha256: str) -> list[ImagePlace]:
        """Copies of an image in the packs that are known; those of another process may not be.

        Raises:
            StorageError: the packs cannot be listed, or a footer is damaged.
        """
        if self._listed is None or self._folder_state() != self._listed:
            self.refresh()
        if self._is_empty:
            return []
        rows = self._connection().execute(_FIND, (bytes.fromhex(sha256),))
        return [ImagePlace(*row) for row in rows]

    def refresh(self) -> None:
        """Learn of packs that came or went; raises as `find`."""
        with self._refreshing:
            state, names = self._folder_state(), set(self.packs.names(PACK))
            self._is_empty = not names
            if names or self._path.exists():
                try:
                    self._update(names)
                except StorageError as error:
                    if not str(error).startswith(str(self._path)):
                        raise
                    self._path.unlink()
                    self._update(names)
            self._listed = state

    def _update(self, names: set[str]) -> None:
        with self._file.transaction() as connection:
            known = dict(connection.execute("SELECT name, number FROM packs"))
            for name in known.keys() - names:
                connection.execute("DELETE FROM images WHERE pack = ?", (known[name],))
                connection.execute("DELETE FROM packs WHERE number = ?", (known[name],))
        for name in sorted(names - known.keys()):
            with suppress(FileNotFoundError):  # it went meanwhile
                self._add(name)

    def _add(self, name: str) -> None:
        ranges = read_ranges(self.packs, name)
        with self._file.transaction() as connection:
            insert = "INSERT OR IGNORE INTO packs (name) VALUES (?) RETURNING number"
            row = connection.execute(insert, (name,)).fetchone()
            if row is None:  # another process was first
                return
            connection.executemany(
                "INSERT INTO images VALUES (?, ?, ?, ?)",
                ((bytes.fromhex(each.sha256), row[0], each.offset, each.length) for each in ranges),
            )

    def _folder_state(self) -> object:
        """Changes when a local folder does; of a remote one only `refresh` sees changes."""
        if not self.packs.is_local:
            return ()
        try:
            return Path(self.packs.root).stat().st_mtime_ns
        except FileNotFoundError:
            return ()

    def _connection(self) -> sqlite3.Connection:
        """A connection of this thread and process (a fork must not use its parent's)."""
        own = self._connections
        if getattr(own, "process", None) != os.getpid():
            own.connection = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", 30, uri=True)
            own.process = os.getpid()
        connection: sqlite3.Connection = own.connection
        return connection
