"""Locks between the processes of one machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def exclusive_lock(path: Path, in_use: Exception) -> Iterator[None]:
    """Hold the lock file `path`, whose folder must exist; the kernel frees it with the process.

    Raises:
        in_use: another process holds it.
        OSError: the file cannot be opened.
    """
    try:
        lock = FileLock(path).acquire(timeout=0)
    except Timeout:
        raise in_use from None
    with lock:
        yield
