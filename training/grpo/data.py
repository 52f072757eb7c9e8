"""The rows of a run in the order of training, with the size that the model sees images at."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import FoundryError
from warehouse.atomic import atomic_path

from .settings import GrpoSettings

EXPORT = "critic_rl.parquet"
_CHUNK_ROWS = 256  # each with two images in memory


def total_steps(export: Path, settings: GrpoSettings) -> int:
    """Steps of a complete run: one epoch, or `max_steps` where that is less.

    Raises:
        FoundryError: there is no export, or it has fewer rows than a batch.
    """
    source = export / EXPORT
    if not source.is_file():
        raise FoundryError(f"{source} is missing: materialize `exports`")
    rows = pq.read_metadata(source).num_rows
    if rows < settings.batch:
        raise FoundryError(f"{source} has {rows} rows, fewer than a batch of {settings.batch}")
    epoch = rows // settings.batch
    return min(epoch, settings.max_steps or epoch)


def write_rows(export: Path, target: Path, settings: GrpoSettings) -> None:
    """Write the rows of all steps to `target`, once; verl reads them from first to last.

    Images carry `max_pixels`, to which verl's loader (qwen_vl_utils) shrinks them, so that the
    policy sees what it saw in supervised training. Paths become absolute.
    """
    if target.is_file():
        return
    table = pq.read_table(export / EXPORT)
    count = total_steps(export, settings) * settings.batch
    order = Random(settings.seed).sample(range(table.num_rows), count)
    chunks = (table.take(order[i : i + _CHUNK_ROWS]) for i in range(0, count, _CHUNK_ROWS))
    pixels = settings.image_max_pixels
    with atomic_path(target, target.with_suffix(".partial")) as draft:
        _write_parquet(draft, (_with_max_pixels(chunk, export, pixels) for chunk in chunks))


def _with_max_pixels(table: pa.Table, export: Path, pixels: int) -> pa.Table:
    column = [
        [_sized_image(image, export, pixels) for image in images]
        for images in table.column("images").to_pylist()
    ]
    return table.set_column(table.column_names.index("images"), "images", pa.array(column))


def _sized_image(image: dict[str, Any], export: Path, pixels: int) -> dict[str, Any]:
    if "image" in image:
        image = {"image": str((export / image["image"]).absolute())}
    return {**image, "max_pixels": pixels}


def _write_parquet(path: Path, chunks: Iterator[pa.Table]) -> None:
    first = next(chunks)
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for chunk in chunks:
            writer.write_table(chunk)
