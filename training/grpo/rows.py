"""The rows that verl reads: those of the export that fit, in the order of training, and those that
it does not train on, by which a checkpoint is chosen."""

from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from inference.engine.hashing import unit_interval
from schemas import FoundryError
from warehouse import ImageStore
from warehouse.atomic import atomic_path

from ..row_lengths import LEFT_OUT, TokenCounter, name_left_out
from .recipe import DEV_ROWS, ROWS, GrpoSettings

_IMAGE_IDS = ("origin_image", "edited_image")


def prepare_rows(
    export: Path,
    folder: Path,
    settings: GrpoSettings,
    parent: Path,
    images: ImageStore,
    log: Callable[[str], object],
) -> int:
    """Write the rows of all steps to the job's folder, once, and with `dev_share` the rows that are
    not trained on; returns the number of steps.

    Steps are one epoch, or `max_steps` where that is less; verl reads the rows from first to last.
    A picture is a path in the job's folder where the store has it: a hard link if that is possible,
    else a copy. So it stays while it is trained on, whatever becomes of store and export. With it
    is `max_pixels`, to which verl's loader (qwen_vl_utils) shrinks it, so that the policy sees what
    it saw in supervised training.

    Raises:
        FoundryError: there is no export, too few rows fit, or none is left to evaluate.
    """
    target = folder / ROWS
    if not target.is_file():
        table = _read(export, folder, images)
        count = TokenCounter(parent, settings.image_max_pixels).count
        fitting, dev = _split(
            table, _fitting(table, count, folder, settings, log), settings.dev_share
        )
        steps = len(fitting) // settings.batch
        if not steps or (settings.dev_share and not dev):
            apart = f", and {len(dev)} by dev_share {settings.dev_share}" * bool(settings.dev_share)
            few = f"{len(fitting)} rows to train on, by batches of {settings.batch}{apart}"
            raise FoundryError(f"{export / ROWS} has {few}: run more shards, or change these")
        used = min(steps, settings.max_steps or steps) * settings.batch
        chosen = table.take(Random(settings.seed).sample(fitting, used))
        if dev:
            _write(_marked(table.take(dev), "dev"), folder / DEV_ROWS, settings)
        _write(chosen, target, settings)
    return int(pq.read_metadata(target).num_rows) // settings.batch


def _split(table: pa.Table, rows: list[int], dev_share: float) -> tuple[list[int], list[int]]:
    """Numbers of the rows that are trained on, and of those of the other prompts."""
    names = [row["row_id"] for row in table.column("extra_info").to_pylist()]
    # TRAJECTORY/STEP/ITERATION/COPY: a prompt has one trajectory.
    prompts = [name.rsplit("/", 3)[0] for name in names]
    dev = {prompt for prompt in prompts if unit_interval(prompt) < dev_share}
    return (
        [number for number in rows if prompts[number] not in dev],
        [number for number in rows if prompts[number] in dev],
    )


def _write(rows: pa.Table, target: Path, settings: GrpoSettings) -> None:
    with atomic_path(target, target.with_suffix(".partial")) as draft:
        pq.write_table(_with_max_pixels(rows, settings), draft, compression="zstd")


def _marked(table: pa.Table, split: str) -> pa.Table:
    """Rows whose `extra_info` says which split they are of."""
    column = table.column("extra_info")
    marked = [{**row, "split": split} for row in column.to_pylist()]
    position = table.column_names.index("extra_info")
    return table.set_column(position, "extra_info", pa.array(marked, type=column.type))


def _read(export: Path, folder: Path, images: ImageStore) -> pa.Table:
    file = export / ROWS
    if not file.is_file():
        raise FoundryError(f"{file} is missing: materialize `exports`")
    names = pq.read_schema(file).names
    table = pq.read_table(file, columns=[name for name in names if name != "images"])
    stored = _stored_images(table, folder / "images", images)
    if stored is None:
        exported = pq.read_table(file, columns=["images"]).column(0).to_pylist()
        stored = [[_absolute(image, export) for image in row] for row in exported]
    return table.append_column("images", pa.array(stored))


def _stored_images(
    table: pa.Table, folder: Path, images: ImageStore
) -> list[list[dict[str, str]]] | None:
    """The rows' pictures as paths in a folder, where they are put; None: the store lacks some."""
    rows = table.column("extra_info").to_pylist()
    names = {row[name] for row in rows for name in _IMAGE_IDS}
    if not images.storage.is_local or not all(map(images.exists, names)):
        return None
    paths = {name: folder.absolute() / images.relative_path(name) for name in names}
    for name, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a killed job may have left a part of it
        images.link(name, path)
    return [[{"image": str(paths[row[name]])} for name in _IMAGE_IDS] for row in rows]


def _absolute(image: dict[str, Any], export: Path) -> dict[str, Any]:
    return {"image": str((export / image["image"]).absolute())} if "image" in image else image


def _fitting(
    table: pa.Table,
    count: Callable[..., int],
    folder: Path,
    settings: GrpoSettings,
    log: Callable[[str], object],
) -> list[int]:
    """Numbers of the rows whose prompts are not too long."""
    size, limit = cache(_size), settings.prompt_length
    fitting, left_out = [], []
    for number, row in enumerate(table.select(["prompt", "images", "extra_info"]).to_pylist()):
        sizes = [size(image.get("bytes") or image["image"]) for image in row["images"]]
        if (tokens := count(row["prompt"], sizes)) <= limit:
            fitting.append(number)
        else:
            left_out.append({"row_id": row["extra_info"]["row_id"], "tokens": tokens})
    name_left_out(folder, left_out, table.num_rows, f"prompt_length {limit}")
    if left_out:
        total = f"{len(left_out)} of {table.num_rows} prompts are longer than"
        log(f"{total} prompt_length {limit}: see {LEFT_OUT}")
    return fitting


def _size(image: bytes | str) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(BytesIO(image) if isinstance(image, bytes) else image) as opened:
            return opened.size
    except OSError as error:
        name = "a picture in it" if isinstance(image, bytes) else image
        raise FoundryError(f"{ROWS}: {name} cannot be read: materialize `exports`") from error


def _with_max_pixels(table: pa.Table, settings: GrpoSettings) -> pa.Table:
    def sized(image: dict[str, Any]) -> dict[str, Any]:
        return {**image, "max_pixels": settings.image_max_pixels}

    column = [list(map(sized, images)) for images in table.column("images").to_pylist()]
    return table.set_column(table.column_names.index("images"), "images", pa.array(column))
