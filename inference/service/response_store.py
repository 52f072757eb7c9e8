"""Earlier requests and what came of them: one SQLite file below the home.

It holds no picture bytes, only their names in `home.images`. Whatever moment the process dies at,
what was begun and what was settled is there; what was neither settled nor is running any more was
interrupted.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from warehouse import Home
from warehouse.sqlite_file import SqliteFile

_COLUMNS = "id, owner, created_at, text, status, response, key, body, resumable"
_MIGRATIONS = (
    """
    CREATE TABLE IF NOT EXISTS responses (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        created_at REAL NOT NULL,
        text TEXT NOT NULL,
        words TEXT NOT NULL,
        status TEXT NOT NULL,
        response BLOB NOT NULL,
        key TEXT,
        body TEXT,
        resumable INTEGER NOT NULL,
        settled INTEGER NOT NULL
    );
    CREATE INDEX IF NOT EXISTS newest ON responses (owner, created_at);
    CREATE UNIQUE INDEX IF NOT EXISTS keyed ON responses (owner, key) WHERE key IS NOT NULL;
    """,
)


@dataclass(frozen=True)
class StoredResponse:
    """A request and its response.

    Args:
        owner: id of who asked, derived from the API key; empty where none is needed.
        created_at: seconds since 1970.
        text: what was asked for.
        status: the Response's own, such as `in_progress` or `completed`.
        response: the Response as JSON, without the bytes of pictures.
        key: the requester's own name for it (idempotency key).
        body: hash of what was sent under that key.
        resumable: the same request under the same key goes on with it.
    """

    id: str
    owner: str
    text: str
    status: str
    response: dict[str, Any]
    created_at: float = field(default_factory=time.time)
    key: str | None = None
    body: str | None = None
    resumable: bool = False


class ResponseStore:
    """Every request of a home's service; safe to use from several threads.

    Args:
        home: the file is `service/library.sqlite` in its local folder.

    Raises (all methods):
        StorageError: the file cannot be read or written.
    """

    def __init__(self, home: Home) -> None:
        path = home.local / "service" / "library.sqlite"
        self._file = SqliteFile(path, _MIGRATIONS, fast_commits=True)
        with self._file.transaction():
            pass  # a file that cannot be used is found before the first request

    def get(self, response_id: str, owner: str) -> StoredResponse | None:
        """A response, if there is one of that owner."""
        return self._one("id = ? AND owner = ?", response_id, owner)

    def keyed(self, owner: str, key: str) -> StoredResponse | None:
        """The response that an owner asked for under a key of their own."""
        return self._one("owner = ? AND key = ?", owner, key)

    def search(
        self, owner: str, words: str = "", limit: int = 20, offset: int = 0
    ) -> list[StoredResponse]:
        """An owner's responses whose request has all of these words, newest first."""
        looked_for = words.casefold().split()
        condition = " AND ".join(["owner = ?", *["instr(words, ?) > 0"] * len(looked_for)])
        return self._all(
            f"{condition} ORDER BY created_at DESC, id LIMIT ? OFFSET ?",
            *(owner, *looked_for, limit, offset),
        )

    def begin(self, kept: StoredResponse) -> None:
        """Take in a request that is about to run, or runs again."""
        values = (*_values(kept), kept.text.casefold(), 0)
        self._write(
            f"INSERT OR REPLACE INTO responses ({_COLUMNS}, words, settled) "
            f"VALUES ({', '.join('?' * len(values))})",
            values,
        )

    def settle(
        self, response_id: str, response: Mapping[str, Any], resumable: bool = False
    ) -> None:
        """Take in how a request ended."""
        self._write(
            "UPDATE responses SET status = ?, response = ?, resumable = ?, settled = 1 "
            "WHERE id = ?",
            (response["status"], orjson.dumps(response), resumable, response_id),
        )

    def delete(self, response_id: str, owner: str) -> bool:
        """Forget a response; False: there is none of that owner."""
        condition = "DELETE FROM responses WHERE id = ? AND owner = ?"
        return self._write(condition, (response_id, owner)) > 0

    def unsettled(self) -> list[StoredResponse]:
        """What was begun and has not ended; after a restart, what was interrupted."""
        return self._all("settled = 0 ORDER BY created_at")

    def close(self) -> None:
        """No method may be called after this."""
        self._file.close()

    def _one(self, condition: str, *values: object) -> StoredResponse | None:
        return next(iter(self._all(condition, *values)), None)

    def _all(self, condition: str, *values: object) -> list[StoredResponse]:
        query = f"SELECT {_COLUMNS} FROM responses WHERE {condition}"
        with self._file.transaction() as connection:
            return [_stored(row) for row in connection.execute(query, values)]

    def _write(self, statement: str, values: Sequence[object]) -> int:
        """How many rows it changed."""
        with self._file.transaction() as connection:
            return connection.execute(statement, values).rowcount


def _values(kept: StoredResponse) -> tuple[object, ...]:
    """In the order of `_COLUMNS`."""
    response = orjson.dumps(kept.response)
    what = (kept.id, kept.owner, kept.created_at, kept.text, kept.status, response)
    return (*what, kept.key, kept.body, kept.resumable)


def _stored(row: tuple[Any, ...]) -> StoredResponse:
    response_id, owner, created_at, text, status, response, key, body, resumable = row
    parsed = cast(dict[str, Any], orjson.loads(response))
    return StoredResponse(
        response_id, owner, text, status, parsed, created_at, key, body, bool(resumable)
    )
