"""Packs, of the images of a shard each, and the index that says which pack an image is in.

A pack is one Parquet file, sorted by hash. Columns are `sha256` and `image`, a struct as `datasets`
has for pictures, so that any reader of Parquet opens a pack. Bytes are stored plainly, without
compression or dictionary: so every image is one range of bytes of the file. The footer lists the
ranges, with a checksum; an image is read by its range alone. `docs/compaction.md` says why.

The index is a local SQLite file, a cache of some 50 bytes an image, brought up to date by listing
the packs and reading the footers of new ones; packs never change, they come and go. A lookup reads
a few pages of the file, however many images there are.
"""

import base64
import hashlib
import mmap
import os
import sqlite3
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from schemas import StorageError

from .sqlite_file import SqliteFile
from .storage import Storage, first_line

PACK = ".parquet"

_RANGES = b"interleave.ranges"
_RECORD = struct.Struct("<32sQQ")
_GROUP_BYTES = 8 * 2**20  # of a row group, which other readers load as a whole
_FEATURES = {"sha256": {"dtype": "string", "_type": "Value"}, "image": {"_type": "Image"}}
_SCHEMA = pa.schema(
    [
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
    ],
    metadata={"huggingface": orjson.dumps({"info": {"features": _FEATURES}})},
)
_WRITING: dict[str, Any] = {
    "compression": "none",
    "use_dictionary": False,
    "write_page_checksum": True,
}
_TABLES = (
    "CREATE TABLE packs (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    # An image may be in two packs while one of them is rewritten.
    """
    CREATE TABLE images (
        sha256 BLOB NOT NULL,
        pack INTEGER NOT NULL,
        start INTEGER NOT NULL,
        length INTEGER NOT NULL,
        PRIMARY KEY (sha256, pack)
    ) WITHOUT ROWID
    """,
)
_FIND = "SELECT name, start, length FROM images JOIN packs ON pack = number WHERE sha256 = ?"


class ImageRange(NamedTuple):
    """Where an image is in its pack."""

    sha256: str
    offset: int
    length: int


def write_pack(
    target: Path, images: Iterator[tuple[str, bytes]], max_bytes: int
) -> list[ImageRange]:
    """Write images (sha256, bytes), sorted by hash, up to `max_bytes`, and return their ranges; the
    others stay in the iterator."""
    ranges: list[ImageRange] = []
    with pq.ParquetWriter(target, _SCHEMA, **_WRITING) as writer:
        for group in _groups(images, max_bytes):
            writer.write_table(_to_arrow(group))
            ranges += _find(target, group, ranges[-1].offset + ranges[-1].length if ranges else 0)
        writer.add_key_value_metadata({_RANGES: _encode(ranges)})
    return ranges


def read_ranges(packs: Storage, name: str) -> list[ImageRange]:
    """The ranges of the images of a pack, sorted by hash.

    Raises:
        FileNotFoundError: there is no such pack.
        StorageError: its footer is damaged, or it cannot be read.
    """
    try:
        with packs.open(name) as file:
            return _decode((pq.read_metadata(file).metadata or {})[_RANGES])
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, ValueError, KeyError, struct.error) as error:
        raise StorageError(
            f"the footer of {packs.url(name)} is damaged ({first_line(error)}): move the file "
            "away; `interleave run --select trajectories --force` generates its images again"
        ) from error


def damaged_images(packs: Storage, name: str) -> list[str]:
    """Images of a pack whose bytes have another hash; raises as `read_ranges`."""

    def is_intact(sha256: str, offset: int, length: int) -> bool:
        return hashlib.sha256(packs.read_range(name, offset, length)).hexdigest() == sha256

    return [each.sha256 for each in read_ranges(packs, name) if not is_intact(*each)]


def _groups(
    images: Iterable[tuple[str, bytes]], max_bytes: int
) -> Iterator[list[tuple[str, bytes]]]:
    group: list[tuple[str, bytes]] = []
    size = total = 0
    for image in images:
        group.append(image)
        size, total = size + len(image[1]), total + len(image[1])
        if size >= _GROUP_BYTES or total >= max_bytes:
            yield group
            group, size = [], 0
        if total >= max_bytes:
            return
    if group:
        yield group


def _to_arrow(group: list[tuple[str, bytes]]) -> pa.Table:
    rows = [{"sha256": name, "image": {"bytes": data, "path": None}} for name, data in group]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _find(path: Path, group: list[tuple[str, bytes]], end: int) -> list[ImageRange]:
    """Ranges of images that were written after `end`: each begins a few bytes after the last."""
    ranges = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        for sha256, data in group:
            start = content.find(data, end)
            if start < 0:
                raise StorageError(f"{path}: image {sha256} was not written as it is")
            end = start + len(data)
            ranges.append(ImageRange(sha256, start, len(data)))
    return ranges


def _encode(ranges: Iterable[ImageRange]) -> bytes:
    records = b"".join(_RECORD.pack(bytes.fromhex(name), *place) for name, *place in ranges)
    return base64.b64encode(hashlib.sha256(records).digest() + records)


def _decode(text: bytes) -> list[ImageRange]:
    """ValueError: the checksum is wrong."""
    content = base64.b64decode(text, validate=True)
    checksum, records = content[:32], content[32:]
    if hashlib.sha256(records).digest() != checksum:
        raise ValueError("its checksum is wrong")
    return [ImageRange(name.hex(), *place) for name, *place in _RECORD.iter_unpack(records)]


class ImagePlace(NamedTuple):
    """A range of bytes of a pack."""

    pack: str
    offset: int
    length: int


class PackIndex:
    """The images in the packs of a folder; safe for several threads and processes.

    Args:
        packs: the folder of the packs.
        cache: the SQLite file; one that is damaged, or of another version, is made again.
    """

    def __init__(self, packs: Storage, cache: Path) -> None:
        self.packs, self._path = packs, cache
        self._file = SqliteFile(cache, _TABLES, durable=False)
        self._listed: object = None  # what the folder looked like when it was last listed
        self._is_empty = True
        self._refreshing = threading.Lock()
        self._connections = threading.local()

    def __reduce__(self) -> tuple[type["PackIndex"], tuple[Storage, Path]]:
        return PackIndex, (self.packs, self._path)

    def find(self, sha256: str) -> list[ImagePlace]:
        """Copies of an image in the packs that are known; those of another process may not be.

        Raises:
            StorageError: the packs cannot be listed, or a footer is damaged.
        """
        if self._listed is None or self._folder_state() != self._listed:
            self.refresh()
        if self._is_empty:
            return []
        rows = self._connection().execute(_FIND, (bytes.fromhex(sha256),))
        return [ImagePlace(*row) for row in rows]

    def read(self, sha256: str, without: str = "") -> Iterator[tuple[str, bytes]]:
        """Packs that have an image, but for one, and its bytes there, which are not verified."""
        for pack, offset, length in self.find(sha256):
            if pack != without:
                with suppress(FileNotFoundError):  # it went meanwhile
                    yield pack, self.packs.read_range(pack, offset, length)

    def refresh(self) -> None:
        """Learn of packs that came or went; raises as `find`."""
        with self._refreshing:
            state, names = self._folder_state(), set(self.packs.names(PACK))
            self._is_empty = not names
            if names or self._path.exists():
                try:
                    self._update(names)
                except StorageError as error:
                    if not str(error).startswith(str(self._path)):
                        raise
                    self._path.unlink()
                    self._update(names)
            self._listed = state

    def _update(self, names: set[str]) -> None:
        with self._file.transaction() as connection:
            known = dict(connection.execute("SELECT name, number FROM packs"))
            for name in known.keys() - names:
                connection.execute("DELETE FROM images WHERE pack = ?", (known[name],))
                connection.execute("DELETE FROM packs WHERE number = ?", (known[name],))
        for name in sorted(names - known.keys()):
            with suppress(FileNotFoundError):  # it went meanwhile
                self._add(name)

    def _add(self, name: str) -> None:
        ranges = read_ranges(self.packs, name)
        with self._file.transaction() as connection:
            insert = "INSERT OR IGNORE INTO packs (name) VALUES (?) RETURNING number"
            row = connection.execute(insert, (name,)).fetchone()
            if row is None:  # another process was first
                return
            connection.executemany(
                "INSERT INTO images VALUES (?, ?, ?, ?)",
                ((bytes.fromhex(each.sha256), row[0], each.offset, each.length) for each in ranges),
            )

    def _folder_state(self) -> object:
        """Changes when a local folder does; of a remote one only `refresh` sees changes."""
        if not self.packs.is_local:
            return ()
        try:
            return Path(self.packs.root).stat().st_mtime_ns
        except FileNotFoundError:
            return ()

    def _connection(self) -> sqlite3.Connection:
        """A connection of this thread and process (a fork must not use its parent's)."""
        own = self._connections
        if getattr(own, "process", None) != os.getpid():
            own.connection = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", 30, uri=True)
            own.process = os.getpid()
        connection: sqlite3.Connection = own.connection
        return connection
