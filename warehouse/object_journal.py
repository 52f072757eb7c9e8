"""A journal on an object store, so that another machine can continue the work of a dead one.

Objects cannot be appended to: records that are appended at the same time become one object, a
*segment*, and opening a journal of many segments merges them. A lease lets one worker write at a
time. If a worker that lost it still writes a segment, that has a name of its own, and its records
are read like all others.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import orjson

from .journal import parse_record
from .lease import Lease
from .storage import Storage

_LEASE = "lease.json"
_MERGE_ABOVE = 32  # segments


class _PendingRecord(NamedTuple):
    line: bytes
    stored: "Future[None]"


class ObjectJournal:
    """A `Journal` in a folder of an object store.

    Args:
        storage: the folder, with conditional writes.
        lease_seconds: how long after the death of its writer another worker may write.
    """

    def __init__(self, storage: Storage, lease_seconds: float) -> None:
        self.path = storage.url()
        self._storage = storage
        self._lease = Lease(storage, _LEASE, lease_seconds)
        self._epoch: int | None = None
        self._segments = 0
        self._pending: list[_PendingRecord] = []
        self._pending_lock, self._store_lock = threading.Lock(), threading.RLock()

    def append(self, record: dict[str, Any]) -> None:
        """Add one record; it is stored when this returns.

        Raises:
            StorageError: another worker writes this journal, or the store cannot be written.
        """
        line = orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        record_line = _PendingRecord(line, Future())
        with self._pending_lock:
            self._pending.append(record_line)
        with self._store_lock:
            if not record_line.stored.done():
                self._store()
        record_line.stored.result()

    async def add(self, record: dict[str, Any]) -> None:
        """`append` for event loops."""
        await asyncio.to_thread(self.append, record)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records, oldest first; none if there is no journal.

        Raises:
            StorageError: a line is not a JSON object; the message names segment and line.
        """
        names = self._names()
        for name, data in zip(names, self._storage.read_all(names), strict=True):
            for number, line in enumerate(data.splitlines(), start=1):
                yield parse_record(line, f"{self.path}/{name}", number)

    def remove(self) -> None:
        """Delete all records."""
        for name in self._names():
            self._storage.delete(name)

    def close(self) -> None:
        """Let other workers write."""
        with self._store_lock:
            if self._epoch is not None:
                self._lease.release()
                self._epoch = None

    def __enter__(self) -> "ObjectJournal":
        with self._store_lock:
            self._acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _acquire(self) -> int:
        if self._epoch is None:
            self._epoch, self._segments = self._lease.acquire(), 0
            self._merge()
        return self._epoch

    def _merge(self) -> None:
        """Merge many segments; a crash meanwhile leaves duplicate lines, which are harmless."""
        names = self._names()
        if len(names) > _MERGE_ABOVE:
            self._put(b"".join(self._storage.read_all(names)))
            for name in names:
                self._storage.delete(name)

    def _store(self) -> None:
        with self._pending_lock:
            pending, self._pending = self._pending, []
        try:
            self._acquire()
            self._lease.check()
            self._put(b"".join(each.line for each in pending))
        except BaseException as error:
            for each in pending:
                each.stored.set_exception(error)
        else:
            for each in pending:
                each.stored.set_result(None)

    def _put(self, data: bytes) -> None:
        # Names sort in the order of writing, across owners.
        name = f"{self._epoch:06d}-{self._segments:08d}.jsonl"
        self._storage.write(name, data)
        self._segments += 1

    def _names(self) -> list[str]:
        return [name for name in self._storage.names() if name.endswith(".jsonl")]
