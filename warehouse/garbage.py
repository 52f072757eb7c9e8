"""Removes images that nothing refers to, and what killed processes left.

An image counts as garbage only if its file or pack is older than a grace period: what refers to a
new image may not be written yet. `ImageStore.put` makes old copies new, so that this holds for an
image that is stored again, too.

Whatever looks like a sha256 refers to an image: in strings of Parquet files and SQLite files, in
journals and other text files, in the names of an export's images. That is more than what does, and
needs no list of columns that could lack one.
"""

import hashlib
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas import StorageError

from .atomic import remove
from .compaction import maintenance_lock, pack_images
from .home import Home
from .image_pack import PACK, ImageRange, damaged_images, read_ranges
from .images import ImageStore
from .journal import COMPRESSED, decompress
from .storage import Storage, first_line

_REWRITE_SHARE = 0.3  # of a pack's bytes that are garbage
_DRAFT = re.compile(r"\..+-[0-9a-f]{8,12}\.tmp(\.old)?")  # see `atomic_path`
_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_PATTERN = "[0-9a-f]{64}"
_TEXTS = (".jsonl", ".json", ".partial", ".csv", ".txt", ".md", ".yaml", ".html")
_SKIPPED = ("images", "dagster")
_PENDING_KEYS = 10_000_000


@dataclass(frozen=True)
class Garbage:
    """Something that was removed, or would be.

    Args:
        kind: image, copy (of an image that is in a pack as well), packed image, or draft (of a
            process that was killed).
        where: path or URL; of a packed image, that of its pack.
    """

    kind: str
    where: str
    bytes: int


class HashSet:
    """A set of hashes in 8 bytes each: by their first 16 digits.

    Of two hashes that begin alike one may seem to be in it that is not; of 10^8 no two do.
    """

    def __init__(self) -> None:
        self._sorted, self._new = np.array([], np.uint64), set[int]()

    def update(self, hashes: Iterable[str]) -> None:
        for sha256 in hashes:
            self._new.add(int(sha256[:16], 16))
            if len(self._new) >= _PENDING_KEYS:
                self._sort()

    def __contains__(self, sha256: str) -> bool:
        self._sort()
        key = np.uint64(int(sha256[:16], 16))
        position = int(np.searchsorted(self._sorted, key))
        return position < len(self._sorted) and self._sorted[position] == key

    def _sort(self) -> None:
        if self._new:
            new = np.fromiter(self._new, np.uint64, len(self._new))
            self._sorted, self._new = np.union1d(self._sorted, new), set()


def collect_garbage(home: Home, grace_seconds: float, dry_run: bool = False) -> Iterator[Garbage]:
    """Remove what nothing refers to and is older than `grace_seconds`.

    Packs are rewritten where more than 30 % of their bytes are garbage.

    Raises:
        StorageError: another process does this or compacts, a file cannot be searched for what it
            refers to, or something cannot be read or deleted.
    """
    with maintenance_lock(home):
        referenced = referenced_images(home)
        yield from _files(home.images, referenced, grace_seconds, dry_run)
        for name in home.images.packs.packs.names(PACK):
            yield from _pack(home.images, name, referenced, grace_seconds, dry_run)
        yield from _drafts(home, grace_seconds, dry_run)


def _files(
    images: ImageStore, referenced: HashSet, grace_seconds: float, dry_run: bool
) -> Iterator[Garbage]:
    for path, stat in images.files():
        sha256 = Path(path).stem
        if stat.age <= grace_seconds:
            continue
        if sha256 not in referenced:
            kind = "image"
        elif _other_copy(images, sha256):
            kind = "copy"
        else:
            continue
        if not dry_run:
            images.storage.delete_all([path])
        yield Garbage(kind, images.storage.url(path), stat.size)


def _pack(
    images: ImageStore, name: str, referenced: HashSet, grace_seconds: float, dry_run: bool
) -> Iterator[Garbage]:
    packs = images.packs.packs
    stat = packs.stat(name)
    if stat is None or stat.age <= grace_seconds:
        return
    ranges = read_ranges(packs, name)
    garbage = [
        each
        for each in ranges
        if each.sha256 not in referenced or _other_copy(images, each.sha256, name)
    ]
    if _bytes(garbage) <= _REWRITE_SHARE * _bytes(ranges):
        return
    live = sorted({each.sha256 for each in ranges} - {each.sha256 for each in garbage})
    if set(live) & set(damaged_images(packs, name)):
        return  # `interleave verify` says so; nothing that may be repaired is thrown away
    if not dry_run:
        pack_images(images, live, name.rpartition("-")[0])
        packs.delete_all([name])
        images.packs.refresh()
    for each in garbage:
        yield Garbage("packed image", f"{packs.url(name)}#{each.sha256}", each.length)


def _other_copy(images: ImageStore, sha256: str, pack: str = "") -> bool:
    """Whether another pack has the image, undamaged."""
    copies = images.packs.read(sha256, without=pack)
    return any(hashlib.sha256(data).hexdigest() == sha256 for _, data in copies)


def _bytes(ranges: list[ImageRange]) -> int:
    return sum(each.length for each in ranges)


def _drafts(home: Home, grace_seconds: float, dry_run: bool) -> Iterator[Garbage]:
    """Temporary files and folders of killed processes, in the local folder."""
    folders = (home.local / "lake", home.local / "images", home.local / "images" / "packs")
    found = [path for folder in folders for path in folder.glob(".tmp/*")]
    found += [path for path in home.local.rglob(".*.tmp*") if _DRAFT.fullmatch(path.name)]
    found += (home.local / "journals").glob("*/*.partial")
    for path in found:
        with suppress(FileNotFoundError):
            stat = path.stat()
            if time.time() - stat.st_mtime > grace_seconds:
                if not dry_run:
                    remove(path)
                yield Garbage("draft", str(path), stat.st_size)


def referenced_images(home: Home) -> HashSet:
    """Every hash that a table, journal, log, store, export or review of a home has.

    Raises:
        StorageError: a file cannot be read: then it is unknown what it refers to.
    """
    found = HashSet()
    roots = [home.storage]
    if not home.storage.is_local and home.local.exists():
        roots.append(Storage.at(str(home.local)))
    for root in roots:
        for path, _ in root.walk((*_SKIPPED, home.images.index_file.name)):
            try:
                found.update(_hashes(root, path))
            except FileNotFoundError:  # replaced or finished meanwhile
                continue
            except (OSError, ValueError, pa.ArrowException, sqlite3.Error) as error:
                raise StorageError(
                    f"{root.url(path)} cannot be searched for images ({first_line(error)}), so "
                    "nothing is deleted: repair or remove it"
                ) from error
    return found


def _hashes(root: Storage, path: str) -> Iterator[str]:
    name = PurePosixPath(path)
    if name.suffix == ".parquet":
        with root.open(path) as file:
            yield from _of_parquet(pq.ParquetFile(file))
    elif path.endswith(COMPRESSED):
        yield from _of_text(decompress(root.read(path)))
    elif name.suffix in _TEXTS:
        with root.open(path) as file:
            for line in file:
                yield from _of_text(line)
    elif name.suffix == ".sqlite" and root.is_local:
        yield from _of_sqlite(root.url(path))
    else:
        yield from _of_text(name.stem.encode())


def _of_text(text: bytes) -> Iterator[str]:
    return (found.decode() for found in _HASH.findall(text))


def _of_parquet(file: pq.ParquetFile) -> Iterator[str]:
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    columns = [leaf.path for leaf in leaves if str(leaf.logical_type) in ("String", "JSON")]
    for batch in file.iter_batches(columns=columns) if columns else ():
        for column in batch.columns:
            for strings in _strings(column):
                matching = strings.filter(pc.match_substring_regex(strings, _PATTERN))
                for text in matching.to_pylist():
                    yield from _of_text(text.encode())


def _strings(column: pa.Array) -> Iterator[pa.Array]:
    """String arrays of a column of strings, lists and structs, without nulls."""
    if pa.types.is_struct(column.type):
        for child in column.flatten():
            yield from _strings(child)
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        yield from _strings(column.flatten())
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        yield column.drop_null()


def _of_sqlite(path: str) -> Iterator[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", 30, uri=True)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    if isinstance(value, str | bytes):
                        yield from _of_text(value.encode() if isinstance(value, str) else value)
