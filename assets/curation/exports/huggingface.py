"""A Hugging Face `datasets` directory: Parquet with embedded images, decoded on access.

    datasets.load_dataset(folder, "critic_sft", split="train")

`datasets` itself writes the schema metadata that it reads, so images and messages arrive as
features, offline and without code of this project.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from schemas import Table
from schemas.curation import CRITIC_RL, CRITIC_SFT, PLANNER_SFT, SEQUENCES

from ..settings import ExportSettings
from .folder import ExportFolder, embedded_image, images_of

TABLES = (CRITIC_SFT, CRITIC_RL, PLANNER_SFT, SEQUENCES)
_IMAGE_COLUMNS = ("images", "origin_image", "edited_image")


def write(folder: ExportFolder, settings: ExportSettings) -> dict[str, int]:
    """Write every table as a configuration of its own; rows by configuration."""
    return {table.name: _write_table(folder, table, settings.rows_per_file) for table in TABLES}


def front_matter(counts: Mapping[str, int]) -> str:
    """YAML at the head of README.md that lists the configurations for `load_dataset`.

    Empty tables are left out, because `datasets` cannot open a split without rows.
    """
    lines = ["---", "license: apache-2.0", "configs:" if any(counts.values()) else "configs: []"]
    for name in (name for name, count in counts.items() if count):
        lines += [f"- config_name: {name}", "  data_files:", "  - split: train"]
        lines += [f"    path: data/{name}/train-*.parquet"]
    return "\n".join([*lines, "---", "", ""])


def datasets_schema(fields: Mapping[str, pa.DataType | None]) -> pa.Schema:
    """Arrow schema with the metadata of `datasets`.

    Args:
        fields: column -> type; None: a list of images.
    """
    from datasets import Features, Image, List

    plain = [(name, kind) for name, kind in fields.items() if kind is not None]
    features = Features.from_arrow_schema(pa.schema(plain))
    return Features({name: features.get(name) or List(Image()) for name in fields}).arrow_schema


def _write_table(folder: ExportFolder, table: Table, rows_per_file: int) -> int:
    plain = [field for field in table.arrow_schema if field.name not in _IMAGE_COLUMNS]
    schema = datasets_schema({**{field.name: field.type for field in plain}, "images": None})
    data = f"data/{table.name}"
    (folder.path / data).mkdir(parents=True)
    rows = (_row(folder, row) for row in folder.rows(table))
    return sum(
        folder.parquet(f"{data}/train-{number:05d}.parquet", part, schema)
        for number, part in enumerate(_split_rows(rows, rows_per_file))
    )


def _split_rows(rows: Iterator[dict[str, Any]], size: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Parts of `size` rows; at least one part, so that an empty table has a file."""
    yield islice(rows, size)
    for first in rows:
        yield chain([first], islice(rows, size - 1))


def _row(folder: ExportFolder, row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in row.items() if name not in _IMAGE_COLUMNS}
    images = [embedded_image(folder.home.images, sha256) for sha256 in images_of(row)]
    return {**plain, "images": images}
