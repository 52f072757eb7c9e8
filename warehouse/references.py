"""All images that anything in a home refers to.

Whatever looks like a sha256 counts: in strings of Parquet files and SQLite files, in journals and
other text files, in the names of an export's images. That is more than what refers to images, and
needs no list of columns that could lack one.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas import StorageError

from .home import Home
from .journal import COMPRESSED, decompress
from .storage import Storage, first_line

_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_PATTERN = "[0-9a-f]{64}"
_TEXTS = (".jsonl", ".json", ".partial", ".csv", ".txt", ".md", ".yaml", ".html")
_SKIPPED = ("images", "dagster")
_PENDING_KEYS = 10_000_000


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
        for path in root.walk((*_SKIPPED, home.images.index_file.name)):
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
