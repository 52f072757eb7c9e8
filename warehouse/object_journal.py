"""A journal on an object store, so that another machine can continue the work of a dead one.

Objects cannot be appended to: records that are appended at the same time become one object, a
*segment*, and opening a journal of many segments merges them. A lease lets one worker write at a
time. If a worker that lost it still writes a segment, that has a name of its own, and its records
are read like all others.
"""

import asyncio
import io
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from schemas import StorageError

from .journal import COMPRESSED, LINES, compress, decompress, encode_record, parse_record
from .storage import Storage

LEASE_FILE = "lease.json"
_RENEWALS = 3  # per period of a lease
_POLL_SECONDS = 1.0
_RESOLUTION = 1.0  # of the store's clock, in seconds
_MERGE_ABOVE = 32  # segments


class ObjectJournal:
    """A `Journal` in a folder (with conditional writes) of an object store; see `Lease`."""

    def __init__(self, storage: Storage, lease_seconds: float) -> None:
        self.path = storage.url()
        self._storage = storage
        self._lease = Lease(storage, LEASE_FILE, lease_seconds)
        self._epoch: int | None = None
        self._segments = 0
        self._pending: list[bytes] = []
        self._stored: Future[None] = Future()  # of the pending records
        self._pending_lock, self._store_lock = threading.Lock(), threading.RLock()

    def append(self, record: dict[str, Any]) -> None:
        """As `Journal.append`: the record is stored when this returns."""
        line = encode_record(record)
        with self._pending_lock:
            self._pending.append(line)
            stored = self._stored
        with self._store_lock:
            if not stored.done():
                self._store()
        stored.result()

    async def add(self, record: dict[str, Any]) -> None:
        await asyncio.to_thread(self.append, record)

    def records(self) -> Iterator[dict[str, Any]]:
        """As `Journal.records`; of a line that is none the message names segment and line."""
        for name, data in self._read_segments():
            for number, line in enumerate(io.BytesIO(data), start=1):
                yield parse_record(line, f"{self.path}/{name}", number)

    def compress(self, dry_run: bool = False) -> bool:
        """As `Journal.compress`: all segments become one compressed one."""
        names = self._segment_names()
        is_one = len(names) == 1 and names[0].endswith(COMPRESSED)
        if not names or is_one or self.is_in_use:
            return False
        if dry_run:
            return True
        with self:
            self._merge(COMPRESSED)
        return True

    @property
    def is_in_use(self) -> bool:
        """Whether a worker that may be alive owns it."""
        return self._lease.is_held

    def remove(self) -> None:
        for name in self._segment_names():
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

    def _acquire(self) -> None:
        if self._epoch is not None:
            return
        self._epoch, self._segments = self._lease.acquire(), 0
        if len(self._segment_names()) > _MERGE_ABOVE:
            self._merge(LINES)

    def _segment_names(self) -> list[str]:
        return sorted(self._storage.names(LINES) + self._storage.names(COMPRESSED))

    def _read_segments(self) -> list[tuple[str, bytes]]:
        """Names and lines of the segments, in the order of writing."""
        while True:
            names = self._segment_names()
            try:
                contents = self._storage.read_all(names)
            except FileNotFoundError:  # they were merged meanwhile
                continue
            return [
                (name, decompress(content) if name.endswith(COMPRESSED) else content)
                for name, content in zip(names, contents, strict=True)
            ]

    def _merge(self, suffix: str) -> None:
        """Make one segment of all; a crash meanwhile leaves duplicate lines: harmless."""
        segments = self._read_segments()
        content = b"".join(lines for _, lines in segments)
        self._put(compress(content) if suffix == COMPRESSED else content, suffix)
        for name, _ in segments:
            self._storage.delete(name)

    def _store(self) -> None:
        with self._pending_lock:
            lines, self._pending = self._pending, []
            stored, self._stored = self._stored, Future()
        try:
            self._acquire()
            self._lease.check()
            self._put(b"".join(lines))
            stored.set_result(None)
        except BaseException as error:
            stored.set_exception(error)

    def _put(self, data: bytes, suffix: str = LINES) -> None:
        # Names sort in the order of writing, across owners.
        name = f"{self._epoch:06d}-{self._segments:08d}{suffix}"
        self._storage.write(name, data)
        self._segments += 1


@dataclass(frozen=True)
class LeaseRecord:
    """Content of the lease file. `seconds`: how long it is valid after it was written; 0: released.

    `expires`, in seconds since 1970 by its owner's clock, makes every renewal another record.
    """

    owner: str
    epoch: int
    expires: float
    seconds: float


class Lease:
    """An exclusive right, held from `acquire` to `release` as long as it can be renewed.

    It is a small file, written only with S3's conditional writes (if it is unchanged since it was
    read). Its owner renews it three times per period; a worker that finds it expired takes it over
    with a higher epoch. Its age is by the clock of the store: those of workers may be wrong.

    Args:
        seconds: how long after the death of its owner another worker gets it.
    """

    def __init__(self, storage: Storage, path: str, seconds: float) -> None:
        self._storage, self._path, self._seconds = storage, path, seconds
        self._owner = f"{socket.gethostname()}, process {os.getpid()}, {secrets.token_hex(4)}"
        self._epoch, self._version = 0, ""
        self._valid_until = 0.0  # by the monotonic clock; 0: not held
        self._released = threading.Event()
        self._renewer: threading.Thread | None = None

    def acquire(self) -> int:
        """Become the owner, if need be after the lease of a dead one has expired; returns the
        epoch, higher than that of every owner before.

        Raises:
            StorageError: a living owner has it, or the store cannot be used.
        """
        previous: LeaseRecord | None = None
        while True:
            record, version, remaining = self._read()
            if remaining > 0:
                if previous not in (None, record):  # renewed or passed on, so the owner is alive
                    raise StorageError(
                        f"{self._storage.url(self._path)} belongs to another worker "
                        f"({record.owner}): wait for that run to end, or stop it"
                    )
                previous = record
                time.sleep(min(remaining, _POLL_SECONDS))
            elif self._write(record.epoch + 1, version, self._seconds):
                self._released.clear()
                self._renewer = threading.Thread(target=self._renew, name="lease", daemon=True)
                self._renewer.start()
                return self._epoch

    @property
    def is_held(self) -> bool:
        """Whether an owner has it that may be alive."""
        return self._read()[0].expires > time.time()

    def check(self) -> None:
        """Raise StorageError if it could not be renewed in time: another worker may own it."""
        if time.monotonic() >= self._valid_until:
            raise StorageError(
                f"{self._storage.url(self._path)} could not be renewed in time, and may belong to "
                "another worker now: run again; finished work is not repeated"
            )

    def release(self) -> None:
        """Free it for others at once, if it is still held."""
        self._released.set()
        if self._renewer:
            self._renewer.join()
            self._renewer = None
        if time.monotonic() < self._valid_until:
            self._write(self._epoch, self._version, seconds=0)
        self._valid_until = 0.0

    def _renew(self) -> None:
        while not self._released.wait(self._seconds / _RENEWALS):
            with suppress(StorageError):  # `check` fails when this lasts for too long
                if not self._write(self._epoch, self._version, self._seconds):
                    self._valid_until = 0.0
                    return

    def _write(self, epoch: int, version: str | None, seconds: float) -> bool:
        """Store a record of ours, unless the file has changed; returns whether it is stored."""
        started = time.monotonic()
        expires = time.time() + seconds if seconds else 0.0
        record = LeaseRecord(self._owner, epoch, expires, seconds)
        new_version = self._storage.write_if(self._path, orjson.dumps(record), version)
        if new_version is None:
            stored, new_version, _ = self._read()
            if stored != record or new_version is None:  # else a retried write was ours
                return False
        self._epoch, self._version, self._valid_until = epoch, new_version, started + seconds
        return True

    def _read(self) -> tuple[LeaseRecord, str | None, float]:
        """The record, its version, and for how many seconds it is valid."""
        stored = self._storage.read_version(self._path)
        if stored is None:
            return LeaseRecord("", 0, 0.0, 0.0), None, 0.0
        try:
            record = LeaseRecord(**orjson.loads(stored.data))
        except (orjson.JSONDecodeError, TypeError) as error:
            url = self._storage.url(self._path)
            raise StorageError(
                f"{url} is damaged: delete it if no worker processes this shard, and run again"
            ) from error
        released = not record.expires
        remaining = 0.0 if released else record.seconds + _RESOLUTION - stored.age
        return record, stored.version, remaining
