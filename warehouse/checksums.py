"""CRC-32 of journal lines and of table files, stored inside them; sha256 of a folder's files.

A CRC-32 differs after any single flipped bit, costs a nanosecond a byte, and sits where readers
that do not know it ignore it: in the last field of a JSON line, in the key-value metadata of a
Parquet file. Both are computed with zeros in their own place.
"""

import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from .atomic import atomic_write

SUMS_FILE = "SHA256SUMS"
"""Hashes of a folder's files, as `sha256sum --check` reads them."""

PARQUET_KEY = "interleave.crc32"
UNSEALED = "00000000"
"""The value of `PARQUET_KEY` in a file that `seal_parquet` has not seen."""

_START, _END = b',"crc32":"', b'"}\n'
_DIGITS = 8
_TAIL = len(_START) + _DIGITS + len(_END)
_CHUNK = 1 << 20  # bytes
_VALUE = b"\x18\x08"  # Thrift: field 2, a string of eight bytes
_IMAGE = re.compile(r"/[0-9a-f]{64}\.png$")
_SUM = re.compile(r"([0-9a-f]{64})  (.+)")


def add_line_checksum(record: bytes) -> bytes:
    """A JSON object (not an empty one) as a journal line, with its checksum as last field."""
    return b"".join((record[:-1], _START, b"%08x" % crc32(record), _END))


def strip_line_checksum(line: bytes) -> bytes:
    """The JSON object of a journal line; lines from before there were checksums have none.

    Raises:
        ValueError: the line is not as it was written.
    """
    tail = line[-_TAIL:]
    digits = tail[len(_START) : -len(_END)]
    marks = tail[: len(_START)] + tail[-len(_END) :]
    differing = sum(one != other for one, other in zip(marks, _START + _END, strict=False))
    if len(tail) < _TAIL or differing > 2:  # a damaged mark is no reason to believe the line
        return line
    record = line[:-_TAIL] + b"}"
    if differing or digits != b"%08x" % crc32(record):
        raise ValueError("its checksum is wrong")
    return record


def seal_parquet(file: BinaryIO) -> None:
    """Put the checksum of all bytes into a Parquet file that has `PARQUET_KEY: UNSEALED`."""
    position = _value_position(file)
    if position is None:
        raise ValueError(f"the file has no metadata {PARQUET_KEY}")
    checksum = _file_checksum(file, position)
    file.seek(position)
    file.write(checksum)


def is_sealed_intact(file: BinaryIO) -> bool | None:
    """Whether a Parquet file is as it was written; None: it has no checksum."""
    position = _value_position(file)
    if position is None:
        return None
    file.seek(position)
    return file.read(_DIGITS) == _file_checksum(file, position)


def write_sums(folder: Path, known: Mapping[str, str] | None = None) -> None:
    """Write `SUMS_FILE` for all files below a folder but images whose names are their hashes.

    Args:
        known: hashes that need not be computed, by path below the folder.
    """
    known = known or {}
    lines = [
        f"{known.get(name) or file_sha256(folder / name)}  {name}\n" for name in _files(folder)
    ]
    atomic_write(folder / SUMS_FILE, "".join(lines))


def read_sums(folder: Path) -> dict[str, str] | None:
    """Hashes by path below the folder; None: it has no `SUMS_FILE`.

    Raises:
        ValueError: a line has another form.
    """
    try:
        lines = (folder / SUMS_FILE).read_bytes().decode().splitlines()
    except FileNotFoundError:
        return None
    found = [_SUM.fullmatch(line) for line in lines]
    return {match[2]: match[1] for match in found if match} if all(found) else _malformed()


def differing_files(folder: Path, sums: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Path below the folder and problem of each file that is not as `sums` says."""
    for name, expected in sums.items():
        try:
            if file_sha256(folder / name) != expected:
                yield name, "has another content than when it was written"
        except FileNotFoundError:
            yield name, "is missing"
        except OSError as error:
            yield name, f"cannot be read ({error.strerror})"


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> list[str]:
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if not _IMAGE.search(name) and name != SUMS_FILE)


def _malformed() -> dict[str, str]:
    raise ValueError("a line is not a sha256 and a path")


def _value_position(file: BinaryIO) -> int | None:
    """Offset of the value of `PARQUET_KEY`, whose last occurrence is that in the footer."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - 8))
    footer = min(size, int.from_bytes(file.read(4), "little") + 8)
    file.seek(size - footer)
    data, key = file.read(footer), PARQUET_KEY.encode()
    start = data.rfind(key) + len(key)
    value = start + len(_VALUE)
    return size - footer + value if start >= len(key) and data[start:value] == _VALUE else None


def _file_checksum(file: BinaryIO, position: int) -> bytes:
    """Checksum of a file, in hexadecimal digits, with `UNSEALED` at `position`."""
    file.seek(0)
    checksum, remaining = 0, position
    while remaining and (part := file.read(min(_CHUNK, remaining))):
        checksum, remaining = crc32(part, checksum), remaining - len(part)
    checksum = crc32(UNSEALED.encode(), checksum)
    file.seek(position + _DIGITS)
    while part := file.read(_CHUNK):
        checksum = crc32(part, checksum)
    return b"%08x" % checksum
