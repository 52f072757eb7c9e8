"""An export's folder: replaced as a whole, and not written again while its content stays the same.

All paths in it are relative to it, so it can be moved, zipped or uploaded. Images are hard links
into the image store where that is possible, so they take no space.
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
import pyarrow as pa
import pyarrow.parquet as pq

from inference.agent_prompts import IMAGE
from schemas import FoundryError, Table
from warehouse import Home, ImageStore
from warehouse.atomic import atomic_path

from ..duckdb_session import duckdb_session, query_batches

CARD = "card.json"
_PLACEHOLDER = re.compile(re.escape(IMAGE), re.IGNORECASE)
_BATCH = 256  # rows with embedded images in memory


class PlaceholderError(FoundryError):
    """A row whose text has another number of image placeholders than the row has images."""


@dataclass
class ExportFolder:
    """The folder that an exporter writes to."""

    home: Home
    path: Path
    _images: dict[str, str] = field(default_factory=dict)

    def add_image(self, sha256: str) -> str:
        """Put an image below `images/`; its path relative to the folder, with `/`."""
        if sha256 not in self._images:
            relative = f"images/{self.home.images.relative_path(sha256)}"
            target = self.path / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(self.home, sha256, target)
            self._images[sha256] = relative
        return self._images[sha256]

    def rows(self, table: Table, where: str = "true") -> Iterator[dict[str, Any]]:
        """Stored rows of a table that satisfy `where` (SQL); their placeholders are checked."""
        connection = duckdb_session(self.home)
        for batch in query_batches(connection, f"SELECT * FROM {table.name} WHERE {where}", 2_000):
            for row in batch.to_pylist():
                check_placeholders(table.name, row["row_id"], row["messages"], images_of(row))
                yield row

    def json_list(self, name: str, rows: Iterator[Mapping[str, Any]]) -> int:
        """Write rows as one JSON list, a row per line; the number of rows."""
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
        """Write rows as JSON lines; the number of rows."""
        count = 0
        with (self.path / name).open("wb") as file:
            for row in rows:
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
        return count

    def parquet(
        self, name: str, rows: Iterator[dict[str, Any]], schema: pa.Schema, **options: Any
    ) -> int:
        """Write rows as a Parquet file, in batches; the number of rows."""
        count = 0
        with pq.ParquetWriter(self.path / name, schema, **options) as writer:
            while batch := list(islice(rows, _BATCH)):
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                count += len(batch)
        return count

    def hashes(self) -> dict[str, str]:
        """sha256 of every data file; images have theirs in their names."""
        files = [path for path in sorted(self.path.rglob("*")) if path.is_file()]
        return {
            str(path.relative_to(self.path)): _sha256(path)
            for path in files
            if path.relative_to(self.path).parts[0] != "images"
        }


def embedded_image(images: ImageStore, sha256: str) -> dict[str, Any]:
    """An image as `datasets` stores it in Parquet.

    Raises:
        BadImageError: it is missing or damaged.
    """
    return {"bytes": images.get(sha256).data, "path": f"{sha256}.png"}


def images_of(row: Mapping[str, Any]) -> list[str]:
    """A row's images (sha256) in the order of their placeholders."""
    if "images" in row:
        return list(row["images"])
    return [row["origin_image"], row["edited_image"]]


def check_placeholders(
    table: str, row_id: str, messages: Sequence[Mapping[str, str]], images: Sequence[str]
) -> None:
    """Raises PlaceholderError unless there is one placeholder per image."""
    count = sum(len(_PLACEHOLDER.findall(message["content"])) for message in messages)
    if count != len(images):
        raise PlaceholderError(
            f"{table} row {row_id} has {count} {IMAGE} placeholders for {len(images)} images; "
            f"materialize {table} again"
        )


def publish(path: Path, fingerprint: str, write: Callable[[Path], None]) -> bool:
    """Replace a folder by what `write` writes; False if it has this fingerprint already.

    Raises:
        FoundryError: the folder cannot be written.
    """
    if published_fingerprint(path) == fingerprint:
        return False
    try:
        with atomic_path(path) as draft:
            draft.mkdir()
            write(draft)
    except OSError as error:
        raise FoundryError(f"{path} cannot be written: {error.strerror or error}") from error
    return True


def published_fingerprint(path: Path) -> str | None:
    """Fingerprint of a published folder; None if there is none with a readable card."""
    return _read_card(path).get("fingerprint")


def published_tables(path: Path) -> dict[str, str | None]:
    """Content hashes of the tables that a published folder was written from, by name."""
    return dict(_read_card(path).get("tables") or {})


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card = orjson.loads((path / CARD).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return card if isinstance(card, dict) else {}


def _link(home: Home, sha256: str, target: Path) -> None:
    """Hard link if source and target share a file system, else a verified copy."""
    if home.images.storage.is_local:
        with suppress(OSError):
            os.link(home.images.url(sha256), target)
            return
    target.write_bytes(home.images.get(sha256).data)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
