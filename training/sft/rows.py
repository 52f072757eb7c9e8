"""The rows that LLaMA-Factory reads: those of the export, less the ones above its cutoff; and those
that it does not train on, by which a checkpoint is chosen."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson

from inference.engine.hashing import unit_interval
from schemas import FoundryError
from warehouse.atomic import atomic_write

from ..row_lengths import LEFT_OUT, TokenCounter, name_left_out
from .recipe import SftJob, SftRecipe, dev_set

_INFO = "dataset_info.json"
_ROWS = "rows"  # in the job's folder
# LLaMA-Factory's own.
_DEFAULT_CUTOFF = 2048
_DEFAULT_PIXELS = {"image_max_pixels": 768 * 768, "image_min_pixels": 32 * 32}


def prepare_rows(
    job: SftJob, recipe: SftRecipe, folder: Path, log: Callable[[str], object]
) -> Path:
    """The folder of the data sets: the export's own unless rows are left out, repeated, or not
    trained on.

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
        files[info[name]["file_name"]] = _repeated(fitting, job.repeats.get(name, 1.0))
    name_left_out(folder, left_out, total, f"cutoff_len {limit}")
    if left_out:
        log(f"{len(left_out)} of {total} rows are longer than cutoff_len {limit}: see {LEFT_OUT}")
    if share := job.settings.dev_share:
        _split(job.datasets, info, files, share)
    elif not left_out and not job.repeats:
        return job.data
    target = folder / _ROWS
    for name, rows in {**files, _INFO: info}.items():
        atomic_write(target / name, orjson.dumps(rows))
    return target


def _repeated(rows: list[Any], times: float) -> list[Any]:
    """Every row so often; of a fraction, the first rows, whose prompts are in random order."""
    copies, more = divmod(times, 1)
    return rows * int(copies) + rows[: round(len(rows) * more)]


def _split(names: list[str], info: dict[str, Any], files: dict[str, Any], share: float) -> None:
    """Move a share of the prompts, the same ones in every data set, to data sets of their own."""
    for name in names:
        file, dev_file = info[name]["file_name"], f"{dev_set(name)}.json"
        dev = [row for row in files[file] if _position(row) < share]
        files[dev_file], files[file] = dev, [row for row in files[file] if _position(row) >= share]
        info[dev_set(name)] = {**info[name], "file_name": dev_file}
        if not files[file] or not dev:
            raise FoundryError(
                f"{name}: dev_share {share} leaves {len(files[file])} rows to train on and "
                f"{len(dev)} to evaluate: change it"
            )


def _position(row: dict[str, Any]) -> float:
    """Between 0 and 1, by the prompt; rows without one, which were imported, by themselves."""
    if "row_id" not in row:
        raise FoundryError("the export has no ids of prompts: materialize `exports` again")
    return unit_interval(row["prompt_id"] or row["row_id"])


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
