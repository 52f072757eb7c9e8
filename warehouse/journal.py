"""Append-only journals of finished work, so that a restarted run does not repeat it.

One JSON object per line, with a checksum, each written by one system call. A line without its
newline was cut off by a crash: readers skip it, and the next append removes it. One process at a
time writes a journal. Lines of finished work may be compressed, in a file of their own, which comes
before the others.
"""

import io
import mmap
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import pyarrow as pa

from schemas import StorageError

from .atomic import atomic_write
from .file_lock import is_locked, lock_now
from .storage import storage_errors

LINES, COMPRESSED = ".jsonl", ".jsonl.zst"

_CHECKSUM_BYTES = 21
_LOCK_SECONDS = 0.3  # for those that hold it for a moment: `is_in_use`, `compress`


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

        Where `compress` is killed, or works at the same time, some may come twice.

        Raises:
            StorageError: a complete line is damaged; the message names file and line.
        """
        # In this order: lines are in the compressed file before they leave the other.
        lines = _read(self.path)
        with storage_errors("read", self._compressed):
            older = decompress(_read(self._compressed))
        for path, content in ((self._compressed, older), (self.path, lines)):
            for number, line in enumerate(io.BytesIO(content), start=1):
                if line.endswith(b"\n") or has_damaged_newline(line):
                    yield parse_record(line, path, number)

    def compress(self, dry_run: bool = False) -> bool:
        """Move all lines to the compressed file; False: there are none, or a process writes them.

        `dry_run`: only say so.

        Raises:
            StorageError: the file cannot be written, or the compressed one is damaged.
        """
        lines = b"" if self.is_in_use else _read(self.path)
        lines = lines[: lines.rfind(b"\n") + 1]
        if not lines or dry_run:
            return bool(lines)
        draft = self._compressed.with_suffix(".partial")
        with storage_errors("written", self._compressed):
            content = decompress(_read(self._compressed)) + lines
            atomic_write(draft, compress(content), durable=True)
            with self:  # only now, since a run that finds it locked fails
                if unchanged := _read(self.path) == lines:
                    draft.replace(self._compressed)
                    self.path.unlink()
        draft.unlink(missing_ok=True)
        return unchanged

    @property
    def is_in_use(self) -> bool:
        """Whether a process writes it."""
        return is_locked(self.path)

    def remove(self) -> None:
        with storage_errors("removed", self.path):
            self._compressed.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    @property
    def _compressed(self) -> Path:
        return self.path.with_suffix(COMPRESSED)

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
        while self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _lock(fd, self.path)
                _end_with_a_line(fd)
            except BaseException:
                os.close(fd)
                raise
            if _is_at(fd, self.path):
                self._fd = fd
            else:  # it was removed before it was locked
                os.close(fd)
        return self._fd


def compress(content: bytes) -> bytes:
    """As a zstd frame."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


def decompress(content: bytes) -> bytes:
    """The content of a zstd frame, empty for none; OSError: it is damaged."""
    if not content:
        return b""
    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
        return bytes(stream.read())


def encode_record(record: dict[str, Any]) -> bytes:
    """A record as a line, with a checksum as its last field."""
    text = orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY)
    return text[:-1] + _checksum(text)


def parse_record(line: bytes, file: object, number: int) -> dict[str, Any]:
    """The record of line `number` of a file; StorageError: it is not as it was written."""
    text = line[:-_CHECKSUM_BYTES] + b"}"
    if line[-_CHECKSUM_BYTES:] != _checksum(text):
        raise StorageError(
            f"{file}:{number}: damaged, its checksum is wrong: `interleave verify --repair` takes "
            "the line out"
        )
    record: dict[str, Any] = orjson.loads(text)
    return record


def has_damaged_newline(line: bytes) -> bool:
    """Whether a last line without newline was not cut off: its last byte is another one."""
    with suppress(StorageError):
        return bool(parse_record(line[:-1] + b"\n", "", 0))
    return False


def _checksum(text: bytes) -> bytes:
    return b',"crc32":"%08x"}\n' % crc32(text)


def _read(path: Path) -> bytes:
    with storage_errors("read", path), suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def _is_at(fd: int, path: Path) -> bool:
    """Whether an open file is the one that the path names now."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def _lock(fd: int, path: Path) -> None:
    """Lock the journal itself: `filelock`, which truncates its file, would need one more file."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while not lock_now(fd):
        if time.monotonic() > deadline:
            raise StorageError(
                f"{path} is being written by another process: wait for that run to end, or stop it"
            )
        time.sleep(_LOCK_SECONDS / 10)


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
    if not os.fstat(fd).st_size:
        return 0
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as content:
        return content.rfind(b"\n") + 1
