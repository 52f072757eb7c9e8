"""The rows that LLaMA-Factory reads: those of the export, less the ones above its cutoff."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson

from schemas import FoundryError
from warehouse.atomic import atomic_write

from ..row_lengths import LEFT_OUT, TokenCounter, name_left_out
from .recipe import SftJob, SftRecipe

_INFO = "dataset_info.json"
_ROWS = "rows"  # in the job's folder
# LLaMA-Factory's own.
_DEFAULT_CUTOFF = 2048
_DEFAULT_PIXELS = {"image_max_pixels": 768 * 768, "image_min_pixels": 32 * 32}


def prepare_rows(
    job: SftJob, recipe: SftRecipe, folder: Path, log: Callable[[str], object]
) -> Path:
    """The folder of the data sets: the export's own unless rows are left out.

    Raises:
        FoundryError: a data set is missing, or no row of it is left.
    """
    options = recipe.options
    limit = options.get("cutoff_len", _DEFAULT_CUTOFF)
    pixels = (options.get(name, default) for name, default in _DEFAULT_PIXELS.items())
    counter = TokenCounter(job.parent, *pixels)
    tokens = partial(_tokens, counter, cache(partial(_size, job.data)))
    info, files, left_out, total = _read(job.data / _INFO), {}, [], 0
    for name in job.datasets:
        rows = _read(job.data / info[name]["file_name"])
        total += len(rows)
        lengths = list(map(tokens, rows))
        long = [
            {"data_set": name, "row": number, "tokens": length}
            for number, length in enumerate(lengths, 1)
            if length > limit
        ]
        left_out += long
        fitting = [row for row, length in zip(rows, lengths, strict=True) if length <= limit]
        files[info[name]["file_name"]] = fitting
    name_left_out(folder, left_out, total, f"cutoff_len {limit}")
    if not left_out:
        return job.data
    log(f"{len(left_out)} of {total} rows are longer than cutoff_len {limit}: see {LEFT_OUT}")
    target = folder / _ROWS
    for name, rows in {**files, _INFO: info}.items():
        atomic_write(target / name, orjson.dumps(rows))
    return target


def _tokens(
    counter: TokenCounter, size: Callable[[str], tuple[int, int]], row: dict[str, Any]
) -> int:
    return counter.count(row["messages"], [size(image) for image in row["images"]])


def _size(data: Path, image: str) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(data / image) as opened:
            return opened.size
    except OSError as error:
        raise FoundryError(f"{data / image} is no picture: materialize `exports`") from error


def _read(file: Path) -> Any:
    try:
        return orjson.loads(file.read_bytes())
    except OSError as error:
        raise FoundryError(f"{file} is missing: materialize `exports`") from error
