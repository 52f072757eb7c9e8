"""The rows of a training set: what their columns mean, and where a trainer gets them from.

Sources have weights. The lineage trains on its own set and on imports, as `curation.exports.mix`
says; a round on rows of the table `round_rows`, whose weights are a column. A weight says how often
a row occurs: 1 once, 0.5 half of the rows, 2 every row twice.

Functions named `_sql` return an expression or a query of DuckDB over the columns of a set.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from inference.agent_prompts.templates import critic_prompt
from inference.calls.hashing import content_digest, unit_interval
from schemas import FoundryError, Table
from schemas.curation import CRITIC_RL, IMPORTS
from schemas.rounds import ROUND_ROWS
from schemas.trajectories import ATTEMPT_KEY
from warehouse import Home
from warehouse.lake import ALL

from .settings import OURS, CurationSettings

_IMAGES = ("images", "input_images", "origin_image", "edited_image")


def image_columns(table: Table) -> tuple[str, ...]:
    """Columns with sha256 of images: one list of them, or one column an image."""
    return tuple(name for name in _IMAGES if name in table.columns)


def images_of(row: Mapping[str, Any]) -> list[str]:
    """A row's images (sha256) in the order of their placeholders."""
    if "origin_image" in row:
        return [row["origin_image"], row["edited_image"]]
    return list(row["images"] if "images" in row else row["input_images"])


def images_sql(columns: Iterable[str]) -> str:
    """The same in SQL."""
    return "[origin_image, edited_image]" if "origin_image" in columns else "images"


def verdict_sql(columns: Iterable[str]) -> str:
    """The verdict that a row teaches; NULL: it is not a critic's."""
    if "evaluation" in columns:
        return "evaluation.success"
    return "accepted" if "accepted" in columns else "NULL::BOOLEAN"


def content_sql(columns: Iterable[str]) -> str:
    """A hash of what a model reads and learns from a row."""
    return f"md5(concat_ws(' ', messages::VARCHAR, {images_sql(columns)}::VARCHAR))"


def distinct_sql(table: str, columns: Iterable[str], order: str) -> str:
    """The rows whose content no earlier row has, and their copies by balancing, which have the same
    `original`."""
    original = f"concat_ws('/', {', '.join(ATTEMPT_KEY)})" if "iteration" in columns else "row_id"
    return f"""
        SELECT *, {original} AS original FROM {table}
        QUALIFY original = first_value(original) OVER (
            PARTITION BY {content_sql(columns)} ORDER BY {order}
        )
    """


@dataclass(frozen=True)
class Source:
    """A partition with rows of a training set, and their weight."""

    name: str
    table: Table
    partition: str
    weight: float


@dataclass(frozen=True)
class TrainingSources:
    """Where the rows of training sets come from.

    Args:
        round: number of the round whose sets are meant; None: the lineage.
    """

    home: Home
    settings: CurationSettings
    round: int | None = None

    @property
    def exports(self) -> Path:
        """Folder of the exports."""
        if self.round is None:
            return self.home.exports
        return self.home.local / "rounds" / f"{self.round:04}"

    def of(self, table: Table) -> list[Source]:
        """The sources of a set, the lineage's own first."""
        if self.round is not None:
            place = round_partition(self.round, table)
            return [Source(f"round {self.round}", ROUND_ROWS, place, 1)]
        weights = getattr(self.settings.exports.mix, table.name, None) or {OURS: 1}
        ours = [Source(OURS, table, ALL, weights[OURS])] if OURS in weights else []
        return ours + [
            Source(name, IMPORTS, name, weight) for name, weight in weights.items() if name != OURS
        ]

    def rows(self, table: Table, where: Any = None) -> Iterator[dict[str, Any]]:
        """The rows of a set in the columns that exports use, as often as they weigh.

        Args:
            where: a `pyarrow.compute` expression about the columns of the sources.

        Raises (while they are read):
            FoundryError: an import is missing, or is of another kind.
            StorageError: a file is damaged.
        """
        for source in self.of(table):
            if source.table is IMPORTS:
                self.check_import(source.name, table)
            for part in self.home.lake.stream(source.table, partition=source.partition):
                for row in (part if where is None else part.filter(where)).to_pylist():
                    times = copies(row["row_id"], source.weight) * row.get("weight", 1)
                    own = row if source.table is table else self._set_columns(row, table)
                    yield from repeat(own, times)

    def count(self, table: Table) -> int:
        """Rows that are stored of a set, however much they weigh."""
        return sum(self.home.lake.rows(each.table, each.partition) for each in self.of(table))

    def imported_count(self, table: Table) -> int:
        """Imported rows that are mixed into a set, by their weights; missing imports have none."""
        return sum(
            copies(row["row_id"], each.weight)
            for each in self.of(table)
            if each.table is IMPORTS
            for row in self.home.lake.read(IMPORTS, [each.name], ["row_id"]).to_pylist()
        )

    def hash(self, table: Table) -> str | None:
        """Content hash of the rows that were made here; None: none were."""
        if self.round is None:
            return table_hash(self.home, table)
        return self.home.lake.content_hash(ROUND_ROWS, round_partition(self.round, table))

    def mix(self, tables: Sequence[Table]) -> dict[str, dict[str, list[Any]]]:
        """Weight and content hash of every source, of the sets that are not the lineage's alone.

        The hash of the lineage's own set is apart: None.
        """
        mixed = {table.name: self.of(table) for table in tables if self.round is None}
        hashes = self.home.lake.content_hashes(IMPORTS)
        return {
            name: {
                each.name: [each.weight, hashes.get(each.name) if each.table is IMPORTS else None]
                for each in sources
            }
            for name, sources in mixed.items()
            if [(each.name, each.weight) for each in sources] != [(OURS, 1)]
        }

    def import_origins(self, tables: Sequence[Table]) -> Iterator[dict[str, Any]]:
        """`import`, `set`, `rows`, `weight`, `source` and `licence` of every import that has a
        weight; raises FoundryError: one is missing, or is of another kind."""
        for table in tables:
            for each in self.of(table):
                if each.table is IMPORTS and each.weight:
                    self.check_import(each.name, table)
                    rows = self.home.lake.read(IMPORTS, [each.name], ["source", "licence"])
                    about = {"import": each.name, "set": table.name, "rows": rows.num_rows}
                    yield {**about, "weight": each.weight, **rows.slice(0, 1).to_pylist()[0]}

    def check_import(self, name: str, table: Table) -> None:
        """Raises FoundryError unless there is an import of that name, with rows of that set."""
        setting, lake = f"curation.exports.mix.{table.name}", self.home.lake
        if not lake.exists(IMPORTS, name):
            known = ", ".join(lake.partitions(IMPORTS)) or "none yet"
            raise FoundryError(
                f"{setting}: no import {name} in {self.home.root}; there are: {known}; "
                "`interleave import` makes them"
            )
        [kind] = set(lake.read(IMPORTS, [name], ["kind"])["kind"].to_pylist())
        if kind != table.name:
            raise FoundryError(f"{setting}: import {name} has rows of {kind}")

    def _set_columns(self, row: dict[str, Any], table: Table) -> dict[str, Any]:
        """A row of an import or a round in the columns of its set, as far as exports use them."""
        row = {"prompt_id": None, **row}
        if table is not CRITIC_RL:
            return row
        before, after = row["images"]
        template = self.settings.critic.agent_prompt
        question = critic_prompt(row["origin_prompt"], row["rewritten_prompt"], template).text
        messages = [{"role": "user", "content": question}]
        return {**row, "origin_image": before, "edited_image": after, "messages": messages}


def table_hash(home: Home, table: Table) -> str | None:
    """Hash of a table's rows, over all shards where it has some; None: it was never written."""
    if not table.sharded:
        return home.lake.content_hash(table)
    return content_digest(list(home.lake.content_hashes(table).values()))


def round_partition(number: int, table: Table) -> str:
    """The partition of `round_rows` with a set of a round."""
    return f"{number:04}-{table.name}"


def round_rows(home: Home, rounds: Iterable[int], table: Table) -> pa.Table:
    """What some rounds added to a set: their rows but for the older ones that they repeat."""
    partitions = [round_partition(number, table) for number in rounds]
    return home.lake.read(ROUND_ROWS, partitions, where=pc.field("origin") != "replay")


def copies(row_id: str, weight: float) -> int:
    """How often a row occurs; a fraction of the rows is chosen by their ids."""
    times, share = divmod(weight, 1)
    return int(times) + (share > 0 and unit_interval(f"mix/{row_id}") < share)
