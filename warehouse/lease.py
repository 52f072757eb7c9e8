"""A lease on an object store: one owner at a time, and none for long once its owner is dead.

The lease is a small file that is only ever written if it is still what was read (S3's conditional
writes). Its owner renews it three times in its length; whoever finds it run out takes it over under
a higher epoch. Clocks of different machines may differ by up to half its length.
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
    """What the file says. `expires` is in seconds since 1970; 0: given back."""

    owner: str
    epoch: int
    expires: float


class _Found(NamedTuple):
    note: LeaseRecord
    version: str | None


class Lease:
    """The right to write something, held from `acquire` to `release` as long as it is renewed.

    Args:
        storage: where `path` is; its store must have conditional writes.
        seconds: how long after the death of its owner somebody else may have it.
    """

    def __init__(self, storage: Storage, path: str, seconds: float) -> None:
        self._storage, self._path, self._seconds = storage, path, seconds
        self._owner = f"{socket.gethostname()}, process {os.getpid()}, {secrets.token_hex(4)}"
        self._held: _Found | None = None
        self._good_until = 0.0  # by the monotonic clock
        self._given_back = threading.Event()
        self._renewing: threading.Thread | None = None

    def acquire(self) -> int:
        """Become the owner, after waiting for a dead one's lease to run out; returns the epoch.

        Raises:
            StorageError: a living owner has it, or the store cannot be used.
        """
        seen: LeaseRecord | None = None
        while True:
            found = self._read()
            left = found.note.expires - time.time()
            if left <= 0:
                if self._write(found.note.epoch + 1, found.version, self._seconds):
                    return self._begin_renewing()
                continue
            if seen not in (None, found.note):  # renewed or given to another, so alive
                raise StorageError(
                    f"{self._storage.url(self._path)} belongs to another worker "
                    f"({found.note.owner}): wait for that run to end, or stop it"
                )
            seen = found.note
            time.sleep(min(left, _POLL_SECONDS))

    def check(self) -> None:
        """Raises StorageError when the lease could not be renewed in time: others may own it."""
        if time.monotonic() >= self._good_until:
            raise StorageError(
                f"{self._storage.url(self._path)} could not be renewed in time, and may belong to "
                "another worker now: run again; what was finished is kept"
            )

    def release(self) -> None:
        """Let others have it at once; nothing happens when it is not held any more."""
        self._given_back.set()
        if self._renewing:
            self._renewing.join()
            self._renewing = None
        if self._held and time.monotonic() < self._good_until:
            self._write(self._held.note.epoch, self._held.version, seconds=0)
        self._held, self._good_until = None, 0.0

    def _begin_renewing(self) -> int:
        assert self._held
        self._given_back.clear()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._renewing.start()
        return self._held.note.epoch

    def _renew(self) -> None:
        while self._held and not self._given_back.wait(self._seconds / _RENEWALS):
            try:
                if not self._write(self._held.note.epoch, self._held.version, self._seconds):
                    self._good_until = 0.0
                    return
            except StorageError:
                continue  # `check` notices when this goes on for too long

    def _write(self, epoch: int, version: str | None, seconds: float) -> bool:
        """Put the note down as ours for so long, unless another one has come."""
        began = time.monotonic()
        note = LeaseRecord(self._owner, epoch, time.time() + seconds if seconds else 0.0)
        written = self._storage.write_if(self._path, orjson.dumps(asdict(note)), version)
        if written is None:
            found = self._read()  # a retried write may have been ours
            if found.note != note:
                return False
            written = found.version
        self._held, self._good_until = _Found(note, written), began + seconds
        return True

    def _read(self) -> _Found:
        found = self._storage.read_version(self._path)
        if found is None:
            return _Found(LeaseRecord("", 0, 0.0), None)
        data, version = found
        return _Found(LeaseRecord(**orjson.loads(data)), version)
