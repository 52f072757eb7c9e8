"""An export's folder while it is written, and the card of a published one.

All paths in it are relative to it, so it can be moved, zipped or uploaded. Images are hard links
into the image store where that is possible, so they take no space.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from inference.agent_prompts.templates import IMAGE
from schemas import FoundryError, Table
from warehouse import Home
from warehouse.lake import ALL
from warehouse.verify import file_sha256

from ..settings import CurationSettings
from ..sources import TrainingSources, images_of

CARD = "card.json"
_PLACEHOLDER = re.compile(re.escape(IMAGE), re.IGNORECASE)


@dataclass
class ExportFolder:
    """The folder that an exporter writes to."""

    path: Path
    sources: TrainingSources

    @property
    def home(self) -> Home:
        return self.sources.home

    @property
    def settings(self) -> CurationSettings:
        return self.sources.settings

    def add_image(self, sha256: str) -> str:
        """Put an image below `images/`; its path relative to the folder, with `/`."""
        name = f"images/{self.home.images.relative_path(sha256)}"
        target = self.path / name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            self.home.images.link(sha256, target)
        return name

    def rows(self, table: Table, where: Any = None) -> Iterator[dict[str, Any]]:
        """Stored rows that satisfy `where` (a `pyarrow.compute` expression), few of them in memory.

        Raises (while they are read):
            FoundryError: a row has not one placeholder per image.
            StorageError: a file is damaged.
        """
        for partition in self.home.lake.partitions(table) if table.sharded else [ALL]:
            for part in self.home.lake.stream(table, partition=partition):
                rows = (part if where is None else part.filter(where)).to_pylist()
                yield from rows if "messages" not in table.columns else _checked(table, rows)

    def training_rows(self, table: Table, where: Any = None) -> Iterator[dict[str, Any]]:
        """What a trainer gets: the rows of all sources, as often as they weigh; raises likewise."""
        return _checked(table, self.sources.rows(table, where))

    def json_lines(self, name: str, rows: Iterator[Mapping[str, Any]]) -> int:
        """Write rows as JSON lines; the number of rows."""
        count = 0
        with (self.path / name).open("wb") as file:
            for row in rows:
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
                count += 1
        return count

    def indented_json(self, name: str, rows: Iterator[Mapping[str, Any]]) -> int:
        """Write rows as `json.dump(rows, file, ensure_ascii=False, indent=4)` does, few of them in
        memory; the number of rows."""
        count = 0
        with (self.path / name).open("w", encoding="utf-8", newline="") as file:
            for count, row in enumerate(rows, 1):
                lines = json.dumps(row, ensure_ascii=False, indent=4).split("\n")
                file.write("[" if count == 1 else ",")
                file.writelines(f"\n    {line}" for line in lines)
            file.write("\n]" if count else "[]")
        return count

    def hashes(self) -> dict[str, str]:
        """sha256 of every data file; images, which may be many, have theirs in their names."""
        tops = [path for path in self.path.iterdir() if path.name != "images"]
        paths = [path for top in tops for path in (top, *top.rglob("*"))]
        return {
            str(path.relative_to(self.path)): file_sha256(path)
            for path in sorted(paths)
            if path.is_file()
        }


def simulation_note(sources: Mapping[str, Sequence[str]]) -> str:
    """A sentence for cards about backends of the sketch world, by what they played; "": none."""
    simulated = [what for what, names in sources.items() if any(map(_is_simulated, names))]
    if not simulated:
        return ""
    return (
        f"**Simulated** ({', '.join(simulated)}): what is named `sketch` is the sketch world, a "
        "simulator of simple scenes. No image model drew its images, and it makes mistakes at set "
        "rates.\n"
    )


def _is_simulated(name: str) -> bool:
    return name.split("/")[0] == "sketch"


def read_card(path: Path) -> dict[str, Any]:
    """The card of a published folder as JSON data; empty if there is none that can be read."""
    try:
        card = orjson.loads((path / CARD).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return card if isinstance(card, dict) else {}


def _checked(table: Table, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same rows; raises FoundryError: one has not as many placeholders as images."""
    for row in rows:
        text, images = "\n".join(each["content"] for each in row["messages"]), images_of(row)
        if (count := len(_PLACEHOLDER.findall(text))) != len(images):
            raise FoundryError(
                f"{table.name} row {row['row_id']} has {count} {IMAGE} placeholders for "
                f"{len(images)} images; materialize {table.name} again"
            )
        yield row
