"""A Hugging Face `datasets` directory: Parquet with embedded pictures, decoded on access.

    datasets.load_dataset(folder, "critic_sft", split="train")

The schema metadata that `datasets` reads is written by `datasets` itself, so images and messages
arrive as features, offline and without any code of ours.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES

from ..settings import ExportSettings
from .folder import Folder, batched, images_of

TABLES = (CRITIC_SFT, CRITIC_RL, PLANNER_SFT, SEQUENCES)
_BATCH = 256


def write(folder: Folder, settings: ExportSettings) -> dict[str, int]:
    """Write every table as a configuration of its own; rows by configuration."""
    return {table.name: _write_table(folder, table, settings.rows_per_file) for table in TABLES}


def front_matter(counts: Mapping[str, int]) -> str:
    """YAML at the head of README.md that tells `load_dataset` what there is.

    Empty tables are left out, because `datasets` cannot open a split without rows.
    """
    lines = ["---", "license: apache-2.0", "configs:" if any(counts.values()) else "configs: []"]
    for name in (name for name, count in counts.items() if count):
        lines += [f"- config_name: {name}", "  data_files:", "  - split: train"]
        lines += [f"    path: data/{name}/train-*.parquet"]
    return "\n".join([*lines, "---", "", ""])


def _write_table(folder: Folder, table: Table, rows_per_file: int) -> int:
    schema = _schema(table)
    target = folder.path / "data" / table.name
    target.mkdir(parents=True)
    count = 0
    rows = (_row(folder, row) for row in folder.rows(table))
    for number, part in enumerate(_files(rows, rows_per_file)):
        with pq.ParquetWriter(target / f"train-{number:05d}.parquet", schema) as writer:
            for batch in batched(part, _BATCH):
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                count += len(batch)
    return count


def _files(rows: Iterator[dict[str, Any]], size: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Rows in runs of `size`; at least one run, so that an empty table has its file."""
    yield islice(rows, size)
    for first in rows:
        yield chain([first], islice(rows, size - 1))


def _row(folder: Folder, row: dict[str, Any]) -> dict[str, Any]:
    others = {k: v for k, v in row.items() if k not in ("images", "origin_image", "edited_image")}
    return {**others, "images": [_embedded(folder, image) for image in images_of(row)]}


def _embedded(folder: Folder, sha256: str) -> dict[str, Any]:
    return {"bytes": folder.home.images.get(sha256).data, "path": f"{sha256}.png"}


def _schema(table: Table) -> pa.Schema:
    """The table's columns as `datasets` features, pictures in one `images` column."""
    from datasets import Features, Image, List

    plain = [
        field
        for field in table.arrow_schema
        if field.name not in ("images", "origin_image", "edited_image")
    ]
    features = Features.from_arrow_schema(pa.schema(plain))
    features["images"] = List(Image())
    return features.arrow_schema
