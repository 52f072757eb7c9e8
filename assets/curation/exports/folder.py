"""An export's folder: written aside, then renamed; left alone while its content would be the same.

Everything in it is relative to it, so it may be moved, zipped or uploaded as it is. Pictures are
hard links into the image store where that is possible, so they cost no space.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from inference.agent_prompts import IMAGE
from schemas import FoundryError, Table
from warehouse import Home
from warehouse.atomic import atomic_path

from ...core.duckdb_session import arrow_batches, duckdb_session

CARD = "card.json"
_PLACEHOLDER = re.compile(re.escape(IMAGE), re.IGNORECASE)


class PlaceholderError(FoundryError):
    """A row whose text has another number of image placeholders than the row has images."""


@dataclass
class Folder:
    """Where an exporter writes: files by relative name, pictures by hash."""

    home: Home
    path: Path
    _placed: dict[str, str] = field(default_factory=dict)

    def picture(self, sha256: str) -> str:
        """Put a picture below `images/`; its path relative to the folder, with `/`."""
        if sha256 not in self._placed:
            relative = f"images/{self.home.images.relative(sha256)}"
            target = self.path / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(self.home, sha256, target)
            self._placed[sha256] = relative
        return self._placed[sha256]

    def rows(self, table: Table, where: str = "true") -> Iterator[dict[str, Any]]:
        """Rows of a table, or those `where` (SQL) holds, as stored; placeholders are checked."""
        connection = duckdb_session(self.home)
        for part in arrow_batches(connection, f"SELECT * FROM {table.name} WHERE {where}", 2_000):
            for row in part.to_pylist():
                check_placeholders(table.name, row["row_id"], row["messages"], images_of(row))
                yield row

    def json_list(self, name: str, rows: Iterator[Mapping[str, Any]]) -> int:
        """Write rows as one JSON list, a row a line; how many there were."""
        count = 0
        with (self.path / name).open("wb") as file:
            file.write(b"[")
            for row in rows:
                file.write(b",\n" if count else b"\n")
                file.write(orjson.dumps(row))
                count += 1
            file.write(b"\n]\n")
        return count

    def json_lines(self, name: str, rows: Iterator[Mapping[str, Any]]) -> int:
        """Write rows as JSON lines; how many there were."""
        count = 0
        with (self.path / name).open("wb") as file:
            for row in rows:
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
        return count

    def hashes(self) -> dict[str, str]:
        """sha256 of every data file; pictures carry theirs in their names."""
        files = [path for path in sorted(self.path.rglob("*")) if path.is_file()]
        return {
            str(path.relative_to(self.path)): _sha256(path)
            for path in files
            if path.relative_to(self.path).parts[0] != "images"
        }


def images_of(row: Mapping[str, Any]) -> list[str]:
    """A row's pictures in the order of their placeholders."""
    if "images" in row:
        return list(row["images"])
    return [row["origin_image"], row["edited_image"]]


def check_placeholders(
    table: str, row_id: str, messages: Sequence[Mapping[str, str]], images: Sequence[str]
) -> None:
    """Raises PlaceholderError unless there is one placeholder per image."""
    found = sum(len(_PLACEHOLDER.findall(message["content"])) for message in messages)
    if found != len(images):
        raise PlaceholderError(
            f"{table} row {row_id} has {found} {IMAGE} placeholders for {len(images)} images; "
            f"materialize {table} again"
        )


def publish(path: Path, fingerprint: str, write: Callable[[Path], None]) -> bool:
    """Replace a folder by what `write` writes; False when the same was published already.

    Raises:
        FoundryError: the folder cannot be written.
    """
    if fingerprint_of(path) == fingerprint:
        return False
    try:
        with atomic_path(path) as draft:
            draft.mkdir()
            write(draft)
    except OSError as error:
        raise FoundryError(f"{path} cannot be written: {error.strerror or error}") from error
    return True


def fingerprint_of(path: Path) -> str | None:
    """Fingerprint of a published folder; None when there is none, or none that is whole."""
    return _card_of(path).get("fingerprint")


def tables_of(path: Path) -> dict[str, str | None]:
    """Content hashes of the tables that a published folder was written from, by name."""
    return dict(_card_of(path).get("tables") or {})


def _card_of(path: Path) -> dict[str, Any]:
    try:
        card = orjson.loads((path / CARD).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return card if isinstance(card, dict) else {}


def _link(home: Home, sha256: str, target: Path) -> None:
    """Hard link where source and target share a file system, else a checked copy."""
    if home.images.storage.is_local:
        with suppress(OSError):
            os.link(home.images.url(sha256), target)
            return
    target.write_bytes(home.images.get(sha256).data)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def batched(rows: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    """Rows in lists of `size`, the last one shorter."""
    while batch := list(islice(rows, size)):
        yield batch
