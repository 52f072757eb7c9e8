"""A local log of requests that wait or run, and of rows that are not in the lake yet.

It survives kills. Each process appends to files of its own, which it locks. A file is removed once
the lake has its rows; files that no process locks are those of killed ones.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from schemas import Row, StorageError, Table
from schemas.generations import GENERATIONS
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, PLANS, TRAJECTORIES
from warehouse import Home
from warehouse.journal import Journal

Rows = Mapping[Table, Sequence[Row]]

TABLES = (GENERATIONS, PLANS, TRAJECTORIES, ATTEMPTS, MODEL_CALLS)
"""Tables with rows of requests."""

_FOLDER = "requests"
_BY_NAME = {table.name: table for table in TABLES}


@dataclass(frozen=True)
class Entry:
    """A line of the log.

    `accepted`: a request waits, `content` says which. `started`: likewise, it runs. `ended`: its
    rows are `content["rows"]`, for the partition `content["partition"]`. `removed`: its content is
    deleted, and of its calls those with the ids `content["calls"]`.
    """

    kind: Literal["accepted", "started", "ended", "removed"]
    generation_id: str
    content: dict[str, Any]

    def rows(self) -> dict[Table, list[Row]]:
        stored = self.content.get("rows", {})
        return {
            _BY_NAME[name]: [_BY_NAME[name].row.model_validate(row) for row in rows]
            for name, rows in stored.items()
        }


class RequestLog:
    """The log of one process.

    Raises (all methods): StorageError when the disk is full or read-only.
    """

    def __init__(self, home: Home) -> None:
        self._folder = home.local / _FOLDER
        self._name, self._number = secrets.token_hex(8), 0
        self._unfinished: dict[str, Entry] = {}
        self._current: Journal | None = None

    def note_unfinished(self, entry: Entry) -> None:
        """A request waits, or runs."""
        self._append(entry)
        self._unfinished[entry.generation_id] = entry

    def end(self, generation_id: str, partition: str, rows: Rows) -> None:
        self._unfinished.pop(generation_id, None)
        dumped = {
            table.name: [row.model_dump(mode="json") for row in added]
            for table, added in rows.items()
        }
        self._append(Entry("ended", generation_id, {"partition": partition, "rows": dumped}))

    def remove(self, generation_id: str, call_ids: Collection[str]) -> None:
        self._append(Entry("removed", generation_id, {"calls": list(call_ids)}))

    def rotate(self) -> Journal | None:
        """Begin a new file, with unfinished requests; returns the old one, for `remove_file`."""
        old, self._current = self._current, None
        if old:
            for entry in self._unfinished.values():
                self._append(entry)
        return old

    def close(self) -> None:
        """Leave the file, which has only unfinished requests, to the next process."""
        if self._current:
            self._current.close()
            self._current = None

    def abandoned(self) -> list[tuple[Journal, list[Entry]]]:
        """Files of killed processes, in order, which this process locks until `remove_file`."""
        found = []
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.exists() else ():
            file = Journal(path)
            try:
                file.__enter__()
            except StorageError:  # its process lives
                continue
            found.append((file, [Entry(**record) for record in file.records()]))
        return found

    def _append(self, entry: Entry) -> None:
        if self._current is None:
            self._number += 1
            self._current = Journal(self._folder / f"{self._name}-{self._number:06}.jsonl")
        self._current.append(vars(entry))


def remove_file(file: Journal) -> None:
    """Remove a file before its lock is given back."""
    file.remove()
    file.close()
