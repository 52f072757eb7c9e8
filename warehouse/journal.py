"""Append-only journals of finished work, so that a restarted run does not repeat it.

One JSON object per line, with a checksum, each written by one system call. A line without its
newline was cut off by a crash: readers skip it, and the next append removes it. One process at a
time writes a journal.
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

from .checksums import add_line_checksum, strip_line_checksum
from .storage import storage_errors

_BLOCK = 65_536


class Journal:
    """A journal file, created by the first append; it survives kills, but no power cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._lock = threading.Lock()

    def append(self, record: dict[str, Any]) -> None:
        """Add one record; it is completely in the file when this returns.

        Raises:
            StorageError: another process writes this journal, or the disk is full or read-only;
                the journal is unchanged.
        """
        line = encode_record(record)
        with self._lock, storage_errors("written", self.path):
            fd = self._open()
            try:
                written = os.write(fd, line)
                if written < len(line):
                    os.write(fd, line[written:])
            except OSError:  # a part of the line may be in the file
                os.ftruncate(fd, _end_of_last_line(fd))
                raise

    async def add(self, record: dict[str, Any]) -> None:
        """`append` for event loops; one write to a local file hardly blocks them."""
        self.append(record)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records, oldest first; none if there is no journal.

        Raises:
            StorageError: a complete line is damaged; the message names file and line.
        """
        with (
            storage_errors("read", self.path),
            suppress(FileNotFoundError),
            self.path.open("rb") as file,
        ):
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n") or has_damaged_newline(line):
                    yield parse_record(line, self.path, number)

    def remove(self) -> None:
        with storage_errors("removed", self.path):
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let other processes write."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def __enter__(self) -> "Journal":
        with self._lock, storage_errors("written", self.path):
            self._open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> int:
        """Open for appending as the only writer, and remove an incomplete last line."""
        if self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _lock(fd, self.path)
                _end_with_a_line(fd)
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd


def encode_record(record: dict[str, Any]) -> bytes:
    """A record as a line."""
    return add_line_checksum(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY))


def parse_record(line: bytes, file: object, number: int) -> dict[str, Any]:
    """The record of line `number` of a file; StorageError: it is not as it was written."""
    try:
        if isinstance(record := orjson.loads(strip_line_checksum(line)), dict):
            return record
        problem = "not a JSON object"
    except orjson.JSONDecodeError as error:
        problem = f"not JSON ({error})"
    except ValueError as error:
        problem = str(error)
    raise StorageError(
        f"{file}:{number}: damaged, {problem}: `interleave verify --repair` takes the line out"
    )


def has_damaged_newline(line: bytes) -> bool:
    """Whether a last line without newline was not cut off: its last byte is another one."""
    restored = line[:-1] + b"\n"
    with suppress(ValueError):
        return strip_line_checksum(restored) is not restored
    return False


def _lock(fd: int, path: Path) -> None:
    """Lock the journal itself: `filelock`, which truncates its file, would need one more file."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(
            f"{path} is being written by another process: wait for that run to end, or stop it"
        ) from error


def _end_with_a_line(fd: int) -> None:
    """Remove an incomplete last line; of one whose newline is damaged, only that byte."""
    size, end = os.fstat(fd).st_size, _end_of_last_line(fd)
    if has_damaged_newline(os.pread(fd, size - end, end)):
        os.ftruncate(fd, size - 1)
        os.write(fd, b"\n")
    else:
        os.ftruncate(fd, end)


def _end_of_last_line(fd: int) -> int:
    """Offset after the last newline."""
    end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
