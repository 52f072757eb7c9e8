"""Locks between processes of several machines that share a folder, by heartbeats.

The functions are those of `file_lock`. The lock `path` is a folder; who holds it has a file there,
which a thread touches as long as the process lives. A file that was not touched for
$INTERLEAVE_LEASE_SECONDS (the same on all machines) is that of a dead process. Ages are by the
clock of the folder's file system.
"""

import atexit
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .home import lease_seconds

_BEATS = 4  # per lease
_CLOCK = "clock"
_EXCLUSIVE, _SHARED = "exclusive-", "shared-"

_held: set[Path] = set()
_mutex = threading.Lock()


@dataclass(frozen=True)
class Heartbeat:
    """A lock that `try_lock` took."""

    file: Path

    def release(self) -> None:
        with _mutex, suppress(OSError):  # where its file system is gone, it expires
            _held.discard(self.file)
            self.file.unlink(missing_ok=True)


def try_lock(path: Path, shared: bool = False) -> Heartbeat | None:
    """Take a lock without waiting; many may hold it `shared`. None: others hold it."""
    path.mkdir(parents=True, exist_ok=True)
    lock = Heartbeat(path / f"{_SHARED if shared else _EXCLUSIVE}{secrets.token_hex(8)}")
    with _mutex:
        lock.file.touch(mode=0o600)
        _held.add(lock.file)
    _start_beating(os.getpid())
    # Only now: of two that come at the same time at least one sees the other.
    if any(file != lock.file for file in _holders(path, _EXCLUSIVE if shared else "")):
        lock.release()
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock exclusively."""
    return any(_holders(path, _EXCLUSIVE))


def is_free(path: Path) -> bool:
    """Whether no process holds the lock."""
    return not any(_holders(path))


def _holders(path: Path, kind: str = "") -> Iterator[Path]:
    """Files of living holders; those of dead ones are removed."""
    files = [*path.glob(f"{kind or '*-'}*")]
    if not files:
        return
    clock = path / _CLOCK
    clock.touch(mode=0o600)
    now = _modified(clock)
    for file in files:
        with suppress(FileNotFoundError):
            if now - _modified(file) < lease_seconds():
                yield file
            else:
                file.unlink()


def _modified(file: Path) -> float:
    """By an open file: network file systems may have an old answer for a path."""
    with file.open("rb") as stream:
        return os.fstat(stream.fileno()).st_mtime


@cache
def _start_beating(process: int) -> None:
    """Once in every process, also in a fork, which has none of its parent's threads."""
    atexit.register(_release_all)
    threading.Thread(target=_beat, name="heartbeat", daemon=True).start()


def _beat() -> None:
    while True:
        time.sleep(lease_seconds() / _BEATS)
        for file in list(_held):
            with _mutex, suppress(OSError):  # it expires if that lasts
                if file in _held:
                    file.touch(mode=0o600)


def _release_all() -> None:
    for file in list(_held):
        Heartbeat(file).release()
