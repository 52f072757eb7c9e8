"""A lease on an object store: one owner at a time; it expires soon after its owner's death.

The lease is a small file, written only with S3's conditional writes (if it is unchanged since it
was read). Its owner renews it three times per period; a worker that finds it expired takes it over
with a higher epoch. Clocks of different machines may differ by up to half a period.
"""

import os
import secrets
import socket
import threading
import time
from dataclasses import asdict, dataclass
from typing import NamedTuple

import orjson

from schemas import StorageError

from .storage import Storage

_RENEWALS = 3
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class LeaseRecord:
    """Content of the lease file. `expires` is in seconds since 1970; 0: released."""

    owner: str
    epoch: int
    expires: float


class _StoredRecord(NamedTuple):
    record: LeaseRecord
    version: str | None


class Lease:
    """An exclusive right, held from `acquire` to `release` as long as it can be renewed.

    Args:
        storage: the folder of `path`, in a store with conditional writes.
        seconds: how long after the death of its owner another worker gets it.
    """

    def __init__(self, storage: Storage, path: str, seconds: float) -> None:
        self._storage, self._path, self._seconds = storage, path, seconds
        self._owner = f"{socket.gethostname()}, process {os.getpid()}, {secrets.token_hex(4)}"
        self._held: _StoredRecord | None = None
        self._valid_until = 0.0  # by the monotonic clock
        self._released = threading.Event()
        self._renewer: threading.Thread | None = None

    def acquire(self) -> int:
        """Become the owner, if need be after the lease of a dead one has expired.

        Returns:
            The epoch, higher than that of every owner before.

        Raises:
            StorageError: a living owner has it, or the store cannot be used.
        """
        previous: LeaseRecord | None = None
        while True:
            record, version = self._read()
            remaining = record.expires - time.time()
            if remaining <= 0:
                if self._write(record.epoch + 1, version, self._seconds):
                    return self._start_renewing()
                continue
            if previous not in (None, record):  # renewed or passed on, so the owner is alive
                raise StorageError(
                    f"{self._storage.url(self._path)} belongs to another worker "
                    f"({record.owner}): wait for that run to end, or stop it"
                )
            previous = record
            time.sleep(min(remaining, _POLL_SECONDS))

    def check(self) -> None:
        """Check that the lease is still ours.

        Raises:
            StorageError: it could not be renewed in time; another worker may own it.
        """
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
        if self._held and time.monotonic() < self._valid_until:
            self._write(self._held.record.epoch, self._held.version, seconds=0)
        self._held, self._valid_until = None, 0.0

    def _start_renewing(self) -> int:
        assert self._held
        self._released.clear()
        self._renewer = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewer.start()
        return self._held.record.epoch

    def _renew(self) -> None:
        while self._held and not self._released.wait(self._seconds / _RENEWALS):
            try:
                if not self._write(self._held.record.epoch, self._held.version, self._seconds):
                    self._valid_until = 0.0
                    return
            except StorageError:
                continue  # `check` fails when this lasts for too long

    def _write(self, epoch: int, version: str | None, seconds: float) -> bool:
        """Store a record of ours, unless the file has changed; returns whether it is stored."""
        started = time.monotonic()
        record = LeaseRecord(self._owner, epoch, time.time() + seconds if seconds else 0.0)
        new_version = self._storage.write_if(self._path, orjson.dumps(asdict(record)), version)
        if new_version is None:
            stored, new_version = self._read()
            if stored != record:  # else a retried write was ours
                return False
        self._held, self._valid_until = _StoredRecord(record, new_version), started + seconds
        return True

    def _read(self) -> _StoredRecord:
        stored = self._storage.read_version(self._path)
        if stored is None:
            return _StoredRecord(LeaseRecord("", 0, 0.0), None)
        data, version = stored
        return _StoredRecord(LeaseRecord(**orjson.loads(data)), version)
