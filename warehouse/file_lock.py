"""Locks between the processes of one machine, which the kernel frees with the process."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def exclusive_lock(path: Path, in_use: Exception, seconds: float = 0) -> Iterator[None]:
    """Hold the lock file `path`, whose folder must exist; the kernel frees it with the process.

    Args:
        seconds: how long to wait while another process holds it.

    Raises:
        in_use: another process holds it, and still did after `seconds`.
        OSError: the file cannot be opened.
    """
    try:
        lock = FileLock(path).acquire(timeout=seconds)
    except Timeout:
        raise in_use from None
    with lock:
        yield


@dataclass(frozen=True)
class HeldLock:
    """A lock that `try_lock` took; `release` may be called once."""

    descriptor: int

    def release(self) -> None:
        os.close(self.descriptor)

    def write(self, text: str) -> None:
        """Replace the content of the lock's file, for those who find it locked."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, text.encode(), 0)


def lock_now(descriptor: int, shared: bool = False) -> bool:
    """Lock an open file without waiting, until it is closed; False: others hold it."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def try_lock(path: Path, shared: bool = False) -> HeldLock | None:
    """Take a lock without waiting; many may hold it `shared`. None: others hold it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if lock_now(descriptor, shared):
        return HeldLock(descriptor)
    os.close(descriptor)
    return None


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock exclusively."""
    if not path.exists():
        return False
    if lock := try_lock(path, shared=True):
        lock.release()
    return lock is None


def is_free(path: Path) -> bool:
    """Whether no process holds the lock."""
    if lock := try_lock(path):
        lock.release()
    return lock is not None
