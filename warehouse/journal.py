"""Append-only journals of finished work: what a killed run has done is never done again.

One JSON object a line, each written by one call. A line without its newline was cut short by a
crash: readers skip it and the next append removes it. One process writes a journal at a time.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from schemas import StorageError

from .storage import storage_errors

_BLOCK = 65_536


class Journal:
    """A journal file, created by the first append.

    Args:
        path: the `.jsonl` file.
        durable: also survive a power cut (fsync after every append).
    """

    def __init__(self, path: Path, durable: bool = False) -> None:
        self.path = path
        self.durable = durable
        self._fd: int | None = None
        self._lock = threading.Lock()

    def append(self, record: dict[str, Any]) -> None:
        """Add one record; it is in the file, whole, when this returns.

        Raises:
            StorageError: another process writes this journal, or the disk is full or read-only;
                the journal is as it was.
        """
        line = orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"
        with self._lock, storage_errors("written", self.path):
            _append(self._owned(), line)
            if self.durable:
                os.fsync(self._owned())

    async def add(self, record: dict[str, Any]) -> None:
        """`append` for event loops, which one write to a local file hardly delays."""
        self.append(record)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records so far, oldest first; none when there is no journal.

        Raises:
            StorageError: a whole line is not a JSON object; names file and line.
        """
        for number, line in enumerate(self._lines(), start=1):
            if line.endswith(b"\n"):
                yield parsed(line, self.path, number)

    def remove(self) -> None:
        """Forget every record."""
        with storage_errors("removed", self.path):
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process write."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def __enter__(self) -> "Journal":
        with self._lock, storage_errors("written", self.path):
            self._owned()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _owned(self) -> int:
        if self._fd is None:
            self._fd = _open_owned(self.path)
        return self._fd

    def _lines(self) -> Iterator[bytes]:
        with (
            storage_errors("read", self.path),
            suppress(FileNotFoundError),
            self.path.open("rb") as file,
        ):
            yield from file


def parsed(line: bytes, where: object, number: int) -> dict[str, Any]:
    """The record of a line.

    Raises:
        StorageError: it is not a JSON object; names file and line.
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise StorageError(
            f"{where}:{number}: not JSON ({error}): remove the line and run again"
        ) from error
    if not isinstance(record, dict):
        raise StorageError(f"{where}:{number}: not a JSON object: remove the line and run again")
    return record


def _open_owned(path: Path) -> int:
    """Open for appending as the only writer, without the torn last line of a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take_ownership(fd, path)
        os.ftruncate(fd, _end_of_last_line(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _take_ownership(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            f"{path} is being written by another process: wait for that run to end, or stop it"
        ) from error


def _end_of_last_line(fd: int) -> int:
    """Offset behind the last newline."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _append(fd: int, line: bytes) -> None:
    """One write; a part of a line (the disk is full) is taken back before the error is raised."""
    try:
        written = os.write(fd, line)
        if written < len(line):
            os.write(fd, line[written:])
    except OSError:
        os.ftruncate(fd, _end_of_last_line(fd))
        raise
