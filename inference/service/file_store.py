"""Files that clients upload, images so far: one SQLite file below the home, with their bytes.

A deleted file is gone, as its bytes are nowhere else; a generation that began with it has its own
copy in the image store.
"""

import secrets
import time
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from warehouse import Home
from warehouse.sqlite_file import SqliteFile

Order = Literal["asc", "desc"]

_COLUMNS = "id, owner, created_at, filename, purpose, bytes"
_CREATE_TABLE = (
    """
    CREATE TABLE IF NOT EXISTS files (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        owner TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        filename TEXT NOT NULL,
        purpose TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        content BLOB NOT NULL
    )
    """,
    "CREATE INDEX IF NOT EXISTS owned ON files (owner, number)",
)


@dataclass(frozen=True)
class StoredFile:
    """An uploaded file without its bytes. `owner`: see `StoredResponse`; `bytes`: how many."""

    id: str
    owner: str
    created_at: int
    filename: str
    purpose: str
    bytes: int


class Quota(NamedTuple):
    """How many files an owner may have, and of how many bytes in all."""

    files: int
    bytes: int


Files = list[StoredFile]


class FileStore:
    """The files of a home's clients; safe to use from several threads.

    Raises (all methods):
        StorageError: the store cannot be read or written.
    """

    def __init__(self, home: Home) -> None:
        self._file = SqliteFile(home.local / "service" / "files.sqlite", (_CREATE_TABLE,))

    def add(
        self, owner: str, filename: str, purpose: str, content: bytes, quota: Quota
    ) -> StoredFile | None:
        """Store a file; None: the owner's files would exceed the quota."""
        file = StoredFile(
            f"file-{secrets.token_hex(16)}",
            owner,
            int(time.time()),
            filename,
            purpose,
            len(content),
        )
        statement = f"INSERT INTO files ({_COLUMNS}, content) VALUES (?, ?, ?, ?, ?, ?, ?)"
        with self._file.transaction() as connection:
            query = "SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE owner = ?"
            files, size = connection.execute(query, (owner,)).fetchone()
            if files >= quota.files or size + len(content) > quota.bytes:
                return None
            connection.execute(statement, (*vars(file).values(), content))
        return file

    def get(self, file_id: str, owner: str) -> StoredFile | None:
        found = self._select("id = ? AND owner = ?", file_id, owner)
        return found[0] if found else None

    def content(self, file_id: str, owner: str) -> bytes | None:
        """The bytes of a file; None: the owner has no such file."""
        query = "SELECT content FROM files WHERE id = ? AND owner = ?"
        with self._file.transaction() as connection:
            row = connection.execute(query, (file_id, owner)).fetchone()
        return row and bytes(row[0])

    def list(self, owner: str, purpose: str | None, order: Order) -> Files:
        """An owner's files, by the time of their upload."""
        condition = "owner = ? AND (? IS NULL OR purpose = ?) ORDER BY number"
        return self._select(f"{condition} {order}", owner, purpose, purpose)

    def delete(self, file_id: str, owner: str) -> bool:
        """Delete a file; False: the owner has no such file."""
        statement = "DELETE FROM files WHERE id = ? AND owner = ?"
        with self._file.transaction() as connection:
            return connection.execute(statement, (file_id, owner)).rowcount > 0

    def _select(self, condition: str, *values: Any) -> Files:
        query = f"SELECT {_COLUMNS} FROM files WHERE {condition}"
        with self._file.transaction() as connection:
            return [StoredFile(*row) for row in connection.execute(query, values)]
