"""Locks between the processes of one machine."""

from collections.abc import Iterator
from contextlib import contextmanager
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
