"""The rows of a run, in the order they are trained on, with pictures as large as the model sees."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import FoundryError

from .settings import GrpoSettings

EXPORT = "critic_rl.parquet"
_CHUNK = 256  # rows; pictures in memory are twice as many


def length(export: Path, settings: GrpoSettings) -> int:
    """Steps of a whole run: one epoch, or fewer where so many are set.

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

    Pictures carry `max_pixels`, to which verl's loader (qwen_vl_utils) shrinks them, so that the
    policy sees what it saw in supervised training. Paths become absolute.
    """
    if target.is_file():
        return
    table = pq.read_table(export / EXPORT)
    wanted = length(export, settings) * settings.batch
    order = Random(settings.seed).sample(range(table.num_rows), wanted)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_suffix(".partial")
    chunks = (table.take(order[i : i + _CHUNK]) for i in range(0, len(order), _CHUNK))
    _write(draft, (_with_pixels(chunk, export, settings.image_max_pixels) for chunk in chunks))
    draft.replace(target)


def about(rows: Path) -> list[dict[str, Any]]:
    """What the reward needs to know of each row."""
    return pq.read_table(rows, columns=["extra_info"]).column(0).to_pylist()


def _with_pixels(table: pa.Table, export: Path, pixels: int) -> pa.Table:
    pictures = [
        [_picture(image, export, pixels) for image in images]
        for images in table.column("images").to_pylist()
    ]
    return table.set_column(table.column_names.index("images"), "images", pa.array(pictures))


def _picture(image: dict[str, Any], export: Path, pixels: int) -> dict[str, Any]:
    if "image" in image:
        image = {"image": str((export / image["image"]).absolute())}
    return {**image, "max_pixels": pixels}


def _write(path: Path, chunks: Iterator[pa.Table]) -> None:
    first = next(chunks)
    with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for chunk in chunks:
            writer.write_table(chunk)
