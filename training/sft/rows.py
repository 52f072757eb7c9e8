"""The rows that LLaMA-Factory reads: those of the export, less the ones above its cutoff; and those
that it does not train on, by which a checkpoint is chosen."""

import glob
import math
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from shutil import rmtree
from typing import Any

import duckdb
import orjson
import yaml

from inference.calls.hashing import unit_interval
from schemas import FoundryError
from warehouse.parted_files import JsonList, PartedFile, Row, stored_files
from warehouse.storage import first_line

from ..row_lengths import LeftOut, TokenCounter, image_size
from .recipe import SftJob, SftRecipe, dev_set

DATASET_INFO = "dataset_info.json"
_TEXT = {"dtype": "string"}
_MESSAGE = [{"name": name, **_TEXT} for name in ("role", "content")]
_TYPES: dict[str, Any] = {
    "messages": {"list": _MESSAGE},
    "chosen": {"struct": _MESSAGE},
    "rejected": {"struct": _MESSAGE},
    "images": {"list": "string"},
}  # other columns are texts
_ROWS = "rows"  # in the job's folder
_ROWS_PER_FILE = 10_000
_BATCH = 256  # rows in memory
# LLaMA-Factory's own.
_DEFAULT_CUTOFF = 2048
_DEFAULT_PIXELS = {"image_max_pixels": 768 * 768, "image_min_pixels": 32 * 32}


class DataSetFile:
    """Writes a data set to `NAME.json`, or to files in `NAME/`."""

    def __init__(self, folder: Path, name: str, rows_per_file: int) -> None:
        self._folder, self._name = folder, name
        path, self._parts = _places(folder, name)
        self._file = PartedFile(path, self._parts, rows_per_file, JsonList)
        self._columns: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return self._file.count

    def add(self, row: Row) -> None:
        self._columns = self._columns or tuple(row)
        self._file.add(row)

    def close(self) -> dict[str, str]:
        """Returns what its entry in `dataset_info.json` says of the place."""
        if not self._file.close():
            return {"file_name": f"{self._name}.json"}
        features = [{"name": name, **_TYPES.get(name, _TEXT)} for name in self._columns]
        header = yaml.safe_dump({"dataset_info": {"features": features}}, sort_keys=False)
        (self._parts / "README.md").write_text(f"---\n{header}---\n")
        return {"script_url": self._name}


def data_set_files(folder: Path, name: str) -> list[Path]:
    """The files of a data set, in order; FileNotFoundError: one is missing, which is named."""
    return stored_files(*_places(folder, name))


def without_place(declared: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of `dataset_info.json` without what `DataSetFile.close` returns."""
    return {k: v for k, v in declared.items() if k not in ("file_name", "script_url")}


def _places(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.json", folder / name


def prepare_rows(
    job: SftJob, recipe: SftRecipe, folder: Path, log: Callable[[str], object]
) -> Path:
    """The folder of the data sets: the export's own unless rows are left out, repeated, or not
    trained on.

    Rows are read and written one after the other, so their number does not matter.

    Raises:
        FoundryError: a data set is missing, or no row of it is left.
    """
    options, share = recipe.options, job.settings.dev_share
    limit = options.get("cutoff_len", _DEFAULT_CUTOFF)
    pixels = (options.get(name, default) for name, default in _DEFAULT_PIXELS.items())
    counter = TokenCounter(job.parent, *pixels)
    info, total = _read_info(job.data), 0
    draft = folder / f".{_ROWS}"
    rmtree(draft, ignore_errors=True)  # of a killed attempt
    draft.mkdir(parents=True)
    with LeftOut(folder, f"cutoff_len {limit}") as left_out:
        for name in job.datasets:
            with _DataSet(name, draft, info, share, job.repeats.get(name, 1.0)) as data_set:
                for number, row in enumerate(_rows(job.data, name), 1):
                    total += 1
                    sizes = [image_size(job.data / image) for image in row["images"]]
                    if (length := counter.count(row["messages"], sizes)) <= limit:
                        data_set.add(row)
                    else:
                        left_out.add(data_set=name, row=number, tokens=length)
        left_out.publish(total, log)
    if not (left_out.count or share or job.repeats):
        rmtree(draft)
        return job.data
    (draft / DATASET_INFO).write_bytes(orjson.dumps(info))
    target = folder / _ROWS
    rmtree(target, ignore_errors=True)
    return draft.rename(target)


class _DataSet:
    """A data set of a job, with every row `times` times; with a `share`, one more of that share of
    the prompts, the same ones in every data set. `info` declares both when it is left.

    Raises (when it is left):
        FoundryError: one of the two has no rows.
    """

    def __init__(
        self, name: str, folder: Path, info: dict[str, Any], share: float, times: float
    ) -> None:
        self._name, self._info, self._share, self._times = name, info, share, times
        self._rows = 0  # to train on, without copies
        self._train = DataSetFile(folder, name, _ROWS_PER_FILE)
        self._dev = DataSetFile(folder, dev_set(name), _ROWS_PER_FILE) if share else None

    def add(self, row: dict[str, Any]) -> None:
        if self._dev is not None and _position(row) < self._share:
            self._dev.add(row)
            return
        self._rows += 1
        while self._train.count < math.floor(self._rows * self._times):
            self._train.add(row)

    def __enter__(self) -> "_DataSet":
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        form = without_place(self._info[self._name])
        self._info[self._name] = {**self._train.close(), **form}
        if self._dev is None:
            return
        self._info[dev_set(self._name)] = {**self._dev.close(), **form}
        if failure or (self._train.count and self._dev.count):
            return
        raise FoundryError(
            f"{self._name}: dev_share {self._share} leaves {self._train.count} rows to train on "
            f"and {self._dev.count} to evaluate: change it"
        )


def _position(row: dict[str, Any]) -> float:
    """Between 0 and 1, by the prompt; rows without one, which were imported, by themselves."""
    if "row_id" not in row:
        raise FoundryError("the export has no ids of prompts: materialize `exports` again")
    return unit_interval(row["prompt_id"] or row["row_id"])


def _read_info(data: Path) -> Any:
    try:
        return orjson.loads((data / DATASET_INFO).read_bytes())
    except OSError as error:
        raise FoundryError(f"{data / DATASET_INFO} is missing: materialize `exports`") from error


def _rows(data: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a data set, few of them in memory."""
    try:
        files = data_set_files(data, name)
    except FileNotFoundError as error:
        raise FoundryError(f"{error} is missing: materialize `exports`") from error
    return chain.from_iterable(map(_items, files))


def _items(file: Path) -> Iterator[dict[str, Any]]:
    """The items of a JSON list."""
    query = "SELECT json FROM read_json_objects(?, format = 'array')"
    with duckdb.connect(config={"threads": 1}) as connection:
        try:
            found = connection.execute(query, [glob.escape(str(file))])
            while rows := found.fetchmany(_BATCH):
                yield from (orjson.loads(row) for (row,) in rows)
        except duckdb.Error as error:
            problem = first_line(error)
            raise FoundryError(f"{file} is damaged ({problem}): materialize `exports`") from error
