"""A journal on an object store, so that another machine can go on with a dead one's work.

Objects cannot be appended to: what is appended at the same time becomes one object, a *segment*,
and whoever opens a journal of many segments makes one of them. A lease sees to it that one worker
writes; should one that lost it write a last segment all the same, it has its own name, and its
finished calls are found like all others.
"""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import orjson

from .journal import parsed
from .lease import Lease
from .storage import Storage

_LEASE = "lease.json"
_MANY = 32


class _Waiting(NamedTuple):
    line: bytes
    stored: "Future[None]"


class ObjectJournal:
    """What `Journal` is, in a folder of an object store.

    Args:
        storage: the folder, with conditional writes.
        lease_seconds: how long after the death of its writer somebody else may write.
    """

    def __init__(self, storage: Storage, lease_seconds: float) -> None:
        self.path = storage.url()
        self._storage = storage
        self._lease = Lease(storage, _LEASE, lease_seconds)
        self._epoch: int | None = None
        self._segments = 0
        self._waiting: list[_Waiting] = []
        self._adding, self._storing = threading.Lock(), threading.RLock()

    def append(self, record: dict[str, Any]) -> None:
        """Add one record; it is stored when this returns.

        Raises:
            StorageError: another worker writes this journal, or the store cannot be written.
        """
        line = orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        mine = _Waiting(line, Future())
        with self._adding:
            self._waiting.append(mine)
        with self._storing:
            if not mine.stored.done():
                self._store()
        mine.stored.result()

    async def add(self, record: dict[str, Any]) -> None:
        """`append` for event loops."""
        await asyncio.to_thread(self.append, record)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records so far, oldest first; none when there is no journal.

        Raises:
            StorageError: a line is not a JSON object; names segment and line.
        """
        names = self._names()
        for name, data in zip(names, self._storage.read_all(names), strict=True):
            for number, line in enumerate(data.splitlines(), start=1):
                yield parsed(line, f"{self.path}/{name}", number)

    def remove(self) -> None:
        """Forget every record."""
        for name in self._names():
            self._storage.delete(name)

    def close(self) -> None:
        """Let another worker write."""
        with self._storing:
            if self._epoch is not None:
                self._lease.release()
                self._epoch = None

    def __enter__(self) -> "ObjectJournal":
        with self._storing:
            self._own()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _own(self) -> int:
        if self._epoch is None:
            self._epoch, self._segments = self._lease.acquire(), 0
            self._merge()
        return self._epoch

    def _merge(self) -> None:
        """Make one segment of many; one that dies in between leaves lines twice, which is fine."""
        names = self._names()
        if len(names) > _MANY:
            self._put(b"".join(self._storage.read_all(names)))
            for name in names:
                self._storage.delete(name)

    def _store(self) -> None:
        with self._adding:
            waiting, self._waiting = self._waiting, []
        try:
            self._own()
            self._lease.check()
            self._put(b"".join(one.line for one in waiting))
        except BaseException as error:
            for one in waiting:
                one.stored.set_exception(error)
        else:
            for one in waiting:
                one.stored.set_result(None)

    def _put(self, data: bytes) -> None:
        # Names sort in the order of writing, over all owners.
        name = f"{self._epoch:06d}-{self._segments:08d}.jsonl"
        self._storage.write(name, data)
        self._segments += 1

    def _names(self) -> list[str]:
        return [name for name in self._storage.names() if name.endswith(".jsonl")]
