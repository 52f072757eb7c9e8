"""Damage of a home's tables, images, journals and SQLite files, found by reading every byte.

A `Check` reads one file; `find_damage` runs checks in threads. Nothing is changed, and other
processes may write meanwhile. Files of exports and checkpoints are compared with the `SHA256SUMS`
of their folder, which `sha256sum --check` reads as well.
"""

import hashlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from schemas import TABLES, FoundryError, SchemaMismatchError, StorageError, Table

from . import sqlite_file
from .atomic import atomic_write
from .home import Home
from .image_pack import PACK, damaged_images
from .journal import COMPRESSED, LINES, decompress, has_damaged_newline, parse_record
from .lake import REQUESTS
from .storage import first_line

Kind = Literal["table", "image", "journal", "export", "checkpoint", "database"]

# Tables whose images are in the store as long as the row is there.
_WITH_IMAGES = (
    *("prompts", "attempts", "imports"),
    *("critic_sft", "critic_rl", "critic_dpo", "planner_sft", "planner_rl", "sequences"),
)
_IMAGE_COLUMNS = ("image", "source_image", "images", "input_images", "origin_image", "edited_image")
_TRAINING_JOURNALS = ("rollouts.jsonl", "progress.jsonl")

SUMS_FILE = "SHA256SUMS"
_IMAGE = re.compile(r"/[0-9a-f]{64}\.png$")
_SUM = re.compile(r"([0-9a-f]{64})  (.+)")


class Damage(NamedTuple):
    """A damaged or missing file. `subject`: table and partition, or the image's sha256."""

    kind: Kind
    file: str
    problem: str
    remedy: str
    subject: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}; {self.remedy}"


@dataclass(frozen=True)
class Check:
    """What reads a file; `find` returns its damage."""

    kind: Kind
    file: str
    find: Callable[[], Sequence[Damage]]


def find_damage(
    checks: Iterable[Check], threads: int, done: Callable[[], object] = lambda: None
) -> Iterator[Damage]:
    """Damage that the checks find, in their order; `done` is called after each of them."""
    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(lambda check: check.find(), checks):
            yield from found
            done()


def table_checks(home: Home, tables: Iterable[Table] | None = None) -> Iterator[Check]:
    for table in TABLES.values() if tables is None else tables:
        for partition in home.lake.files(table):
            find = partial(verify_partition, home, table, partition)
            yield Check("table", home.lake.file(table, partition), find)


def verify_partition(home: Home, table: Table, partition: str) -> list[Damage]:
    file, subject = home.lake.file(table, partition), (table.name, partition)
    remedy = (
        "restore it from a backup"
        if partition.startswith(REQUESTS)
        else f"`interleave verify --repair`, or move it away and make {table.name} again"
    )
    try:
        home.lake.verify(table, partition)
    except FileNotFoundError:  # removed meanwhile
        return []
    except SchemaMismatchError as error:
        return [Damage("table", file, str(error), remedy, subject)]
    except StorageError as error:
        problem = str(error).removeprefix(f"{file} ").partition(": ")[0]
        return [Damage("table", file, problem, remedy, subject)]
    return []


def image_checks(home: Home) -> Iterator[Check]:
    """Checks of the stored images and packs, then of the images that rows name."""
    stored, packs = set[bytes](), home.images.packs.packs
    for path, _ in home.images.files():
        name = Path(path).stem
        stored.add(bytes.fromhex(name))
        yield Check("image", home.images.url(name), partial(verify_image, home, name))
    for pack in packs.names(PACK):
        yield Check("image", packs.url(pack), partial(verify_pack, home, pack))
    for table in (TABLES[name] for name in _WITH_IMAGES):
        columns = [name for name in _IMAGE_COLUMNS if name in table.columns]
        for partition in home.lake.partitions(table):
            find = partial(_missing_images, home, table, partition, columns, stored)
            yield Check("image", home.lake.file(table, partition), find)


def verify_image(home: Home, sha256: str) -> list[Damage]:
    if not home.images.exists(sha256):
        return []  # removed meanwhile
    try:
        home.images.get(sha256)
    except FoundryError as error:
        problem = "its bytes have another hash" if "hash" in str(error) else first_line(error)
        return [_image_damage(home, sha256, problem)]
    return []


def verify_pack(home: Home, name: str) -> list[Damage]:
    """Images of a pack that are damaged there, and nowhere else intact."""
    packs = home.images.packs.packs
    try:
        damaged = damaged_images(packs, name)
    except FileNotFoundError:  # it was rewritten meanwhile
        return []
    except StorageError as error:
        problem, _, remedy = str(error).partition(": ")
        return [Damage("image", packs.url(name), problem, remedy)]
    return [damage for sha256 in damaged for damage in verify_image(home, sha256)]


def _missing_images(
    home: Home, table: Table, partition: str, columns: Sequence[str], stored: set[bytes]
) -> list[Damage]:
    try:
        rows = home.lake.read(table, [partition], columns)
    except FoundryError:  # a damage of its own
        return []
    names = {name for column in rows.columns for name in _distinct(column)}
    missing = sorted(n for n in names if bytes.fromhex(n) not in stored)
    problem = f"is missing, and {table.name} in {partition} names it"
    return [_image_damage(home, n, problem) for n in missing if not home.images.exists(n)]


def _distinct(column: pa.ChunkedArray) -> list[str]:
    flat = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    names: list[str] = pc.unique(flat.drop_null()).to_pylist()
    return [name for name in names if len(name) == 64]


def _image_damage(home: Home, sha256: str, problem: str) -> Damage:
    remedy = "`interleave run --select trajectories --force` generates it again"
    return Damage("image", home.images.url(sha256), problem, remedy, (sha256,))


def journal_checks(home: Home) -> Iterator[Check]:
    """Checks of the journals, of the log of requests, and of those of trainings."""
    folders = [home.local / "requests", home.local / "training"]
    if home.storage.has_conditional_writes:
        for path in sorted(home.storage.fs.find(f"{home.storage.root}/journals")):
            if path.endswith((LINES, COMPRESSED)):
                name = path.removeprefix(f"{home.storage.root}/")
                url, read = home.storage.url(name), partial(home.storage.read, name)
                yield Check("journal", url, partial(verify_journal, url, read))
    else:
        folders.insert(0, home.local / "journals")
    for folder in folders:
        for file in sorted(each for end in (LINES, COMPRESSED) for each in folder.rglob(f"*{end}")):
            if folder.name != "training" or file.name in _TRAINING_JOURNALS:
                find = partial(verify_journal, str(file), file.read_bytes)
                yield Check("journal", str(file), find)


def verify_journal(file: str, read: Callable[[], bytes]) -> list[Damage]:
    remedy = "what the line said is lost: `interleave verify --repair` takes it out"
    try:
        data = decompress(read()) if file.endswith(COMPRESSED) else read()
    except FileNotFoundError:  # removed meanwhile
        return []
    except OSError as error:
        lost = "restore it from a backup; without it, its calls are made again"
        return [Damage("journal", file, f"is damaged ({first_line(error)})", lost)]
    found = damaged_lines(data, file)
    return [
        Damage("journal", f"{file}:{number}", problem, remedy, (file,)) for number, problem in found
    ]


def damaged_lines(data: bytes, file: str) -> list[tuple[int, str]]:
    """Number and problem of each damaged line; a last line that was cut off is none."""
    found = []
    for number, line in enumerate(data.split(b"\n"), 1):
        whole = line + b"\n"
        is_last = number > data.count(b"\n")
        if is_last and not has_damaged_newline(line):
            continue
        try:
            parse_record(line if is_last else whole, file, number)
        except StorageError as error:
            found.append((number, str(error).removeprefix(f"{file}:{number}: ").partition(": ")[0]))
    return found


def folder_checks(
    kind: Kind, folder: Path, damaged: Callable[[str, str], Damage]
) -> Iterator[Check]:
    """A check of each file that the `SHA256SUMS` of a folder names.

    `damaged`: makes the damage of a path below the folder and a problem.
    """
    try:
        sums = read_sums(folder)
    except (FileNotFoundError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        found = [damaged(SUMS_FILE, "is missing" if missing else str(error))]
        yield Check(kind, found[0].file, lambda: found)
        return

    def verify(name: str) -> list[Damage]:
        problem = difference(folder / name, sums[name])
        return [damaged(name, problem)] if problem else []

    for name in sums:
        yield Check(kind, str(folder / name), partial(verify, name))


def database_checks(home: Home) -> Iterator[Check]:
    """Checks of our SQLite files, and of Dagster's."""
    ours = [*home.local.glob("*.sqlite"), *home.local.glob("service/*.sqlite")]
    for file in sorted(ours) + sorted((home.local / "dagster").rglob("*.db")):
        yield Check("database", str(file), partial(verify_database, file))


def verify_database(file: Path) -> list[Damage]:
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as connection:
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            problems = sqlite_file.find_damage(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # of a message that quotes the file
        problems = [first_line(error)]
    if not problems:
        return []
    remedy = "restore it from a backup, or move it away: a new one is created, without its content"
    return [Damage("database", str(file), f"is damaged ({problems[0]})", remedy)]


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


def read_sums(folder: Path) -> dict[str, str]:
    """Hashes by path below the folder.

    Raises:
        FileNotFoundError: it has no `SUMS_FILE`.
        ValueError: a line of it has another form.
    """
    lines = (folder / SUMS_FILE).read_bytes().decode().splitlines()
    found = [match for line in lines if (match := _SUM.fullmatch(line))]
    if len(found) < len(lines):
        raise ValueError("a line is not a sha256 and a path")
    return {match[2]: match[1] for match in found}


def difference(path: Path, sha256: str) -> str | None:
    """What is wrong with a file; None: it has that hash."""
    try:
        same = file_sha256(path) == sha256
        return None if same else "has another content than when it was written"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> list[str]:
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if not _IMAGE.search(name) and name != SUMS_FILE)
