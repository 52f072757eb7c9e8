"""Requests and the events of their generations: one SQLite file below the home.

Images are stored by sha256 in `home.images`. A row is written when a request begins and when it is
settled; after a kill, rows that are not settled are those that were interrupted.
"""

import time
from collections.abc import Sequence
from typing import Any

import orjson

from warehouse import Home, ImageStore
from warehouse.sqlite_file import SqliteFile

from ..generation.requests import dump_request, load_request
from .run import GenerationRun
from .settings import RetentionSettings

FILE = "service/library.sqlite"
"""Where the store is in a home's local folder."""

_COLUMNS = "owner, request, body, status, events"
_CREATE_TABLES = (
    """
    CREATE TABLE responses (
        id TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        created_at REAL NOT NULL,
        folded_text TEXT NOT NULL,
        status TEXT NOT NULL,
        key TEXT,
        body TEXT,
        resumable INTEGER NOT NULL,
        settled INTEGER NOT NULL,
        request BLOB,
        events BLOB
    )
    """,
    "CREATE INDEX newest ON responses (owner, created_at)",
    "CREATE UNIQUE INDEX keyed ON responses (owner, key) WHERE key IS NOT NULL",
)


class ResponseStore:
    """The requests of a home's service; safe to use from several threads.

    Raises (all methods):
        StorageError: the file cannot be read or written.
    """

    def __init__(self, home: Home) -> None:
        path, self._images = home.local / FILE, home.images
        self._file = SqliteFile(path, _CREATE_TABLES, fast_commits=True)
        with self._file.transaction():
            pass  # creates the file, or raises before the first request

    def get(self, response_id: str, owner: str) -> GenerationRun | None:
        return self._select_one("id = ? AND owner = ?", response_id, owner)

    def by_key(self, owner: str, key: str) -> GenerationRun | None:
        """The response to an owner's request with an idempotency key."""
        return self._select_one("owner = ? AND key = ?", owner, key)

    def search(
        self, owner: str, words: str = "", limit: int = 20, offset: int = 0
    ) -> list[GenerationRun]:
        """An owner's responses whose request contains all words, newest first."""
        condition, terms = _contains(words)
        condition += " ORDER BY created_at DESC, rowid DESC LIMIT ? OFFSET ?"
        return self._select(condition, owner, *terms, limit, offset)

    def count(self, owner: str, words: str = "") -> int:
        """How many responses `search` finds in all."""
        condition, terms = _contains(words)
        query = f"SELECT count(*) FROM responses WHERE {condition}"
        with self._file.transaction() as connection:
            return int(connection.execute(query, (owner, *terms)).fetchone()[0])

    def generation_ids(self, owner: str) -> list[str]:
        """The ids of an owner's requests."""
        column = "json_extract(CAST(request AS TEXT), '$[0].generation_id')"
        with self._file.transaction() as connection:
            query = f"SELECT {column} FROM responses WHERE owner = ?"
            return [name for (name,) in connection.execute(query, (owner,))]

    def begin(self, run: GenerationRun) -> None:
        """Add a request that is about to run, or to run again."""
        row = {
            "id": run.id,
            "owner": run.owner,
            "created_at": run.created_at,
            "folded_text": run.request.text.casefold(),
            "status": run.status,
            "key": run.request.key,
            "body": run.body_hash,
            "resumable": False,
            "settled": False,
            "request": orjson.dumps([dump_request(run.request), run.fields]),
            "events": run.log,
        }
        columns, values = ", ".join(row), ", ".join("?" * len(row))
        statement = f"INSERT OR REPLACE INTO responses ({columns}) VALUES ({values})"
        self._execute(statement, *row.values())

    def settle(self, response_id: str, status: str, events: bytes, resumable: bool = False) -> None:
        """Store how a request ended."""
        self._execute(
            "UPDATE responses SET status = ?, events = ?, resumable = ?, settled = 1 WHERE id = ?",
            *(status, events, resumable, response_id),
        )

    def delete(self, response_id: str, owner: str) -> bool:
        """Delete a response; False: the owner has no such response."""
        statement = "DELETE FROM responses WHERE id = ? AND owner = ?"
        return self._execute(statement, response_id, owner) > 0

    def expired(self, retention: RetentionSettings) -> list[GenerationRun]:
        """Settled responses that are too old, or of which their owner has too many newer ones."""
        oldest = None if retention.days is None else time.time() - retention.days * 86_400
        condition = """
            settled = 1 AND id IN (
                SELECT id FROM (
                    SELECT id, created_at, row_number() OVER (
                        PARTITION BY owner ORDER BY created_at DESC, rowid DESC) AS position
                    FROM responses)
                WHERE created_at < ? OR position > ?)
            ORDER BY created_at, rowid
        """
        return self._select(condition, oldest, retention.responses)

    def settle_unfinished(self, status: str, events: bytes) -> int:
        """Store that all requests that are not settled ended so; how many there were."""
        return self._execute(
            "UPDATE responses SET status = ?, events = ?, resumable = 1, settled = 1 "
            "WHERE settled = 0",
            *(status, events),
        )

    def close(self) -> None:
        self._file.close()

    def _select_one(self, condition: str, *values: object) -> GenerationRun | None:
        return next(iter(self._select(condition, *values)), None)

    def _select(self, condition: str, *values: object) -> list[GenerationRun]:
        query = f"SELECT {_COLUMNS} FROM responses WHERE {condition}"
        with self._file.transaction() as connection:
            return [_from_row(row, self._images) for row in connection.execute(query, values)]

    def _execute(self, statement: str, *values: object) -> int:
        with self._file.transaction() as connection:
            return connection.execute(statement, values).rowcount


def _contains(words: str) -> tuple[str, list[str]]:
    """The condition of an owner's requests that contain all words, and the words."""
    terms = words.casefold().split()
    return " AND ".join(["owner = ?", *["instr(folded_text, ?) > 0"] * len(terms)]), terms


def _from_row(row: Sequence[Any], images: ImageStore) -> GenerationRun:
    owner, content, body_hash, status, log = row
    dumped, fields = orjson.loads(content)
    request = load_request(dumped, images)
    return GenerationRun(owner, request, fields, body_hash, status=status, log=log, images=images)
