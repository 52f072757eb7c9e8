"""The rows that verl reads: those of the export that fit, in the order of training, and those that
it does not train on, by which a checkpoint is chosen."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from shutil import copyfile, rmtree
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from inference.calls.hashing import unit_interval
from schemas import FoundryError
from warehouse import ImageStore
from warehouse.atomic import atomic_path
from warehouse.parted_files import stored_files
from warehouse.table_files import in_row_groups

from ..row_lengths import LeftOut, TokenCounter, image_size
from .recipe import CANDIDATES, DEV_ROWS, ROWS, GrpoSettings

_BATCH = 256  # rows in memory
_PICTURES = 16  # rows with embedded pictures in memory
_CRITIC_IDS = ("origin_image", "edited_image")  # in the order of placeholders
_IMAGE = pa.struct([("image", pa.string()), ("max_pixels", pa.int64())])
_SORTING_MEMORY = "256MB"  # more is sorted on disk


def prepare_rows(
    export: Path,
    folder: Path,
    settings: GrpoSettings,
    parent: Path,
    images: ImageStore,
    log: Callable[[str], object],
    right_shares: Callable[[], Mapping[str, float]],
) -> int:
    """Write the rows of all steps to the job's folder, once, and with `dev_share` the rows that are
    not trained on; returns the number of steps.

    With `candidates`, so many times more rows are written first; `right_shares` says how often the
    parent's answers to each are right, by their ids.

    Steps are one epoch, or `max_steps` where that is less; verl reads the rows from first to last.
    Rows are read in batches, and put in order by DuckDB, on disk where they are many.

    Raises:
        FoundryError: there is no export, too few rows fit, or none is left to evaluate.
    """
    target = folder / ROWS
    if not target.is_file():
        rows = ExportedRows(export, folder / "images", images, settings.image_max_pixels)
        rows.place_pictures()
        count = TokenCounter(parent, settings.image_max_pixels).count
        train, dev = _fitting(rows, count, folder, settings, log)
        steps = len(train) // (settings.batch * settings.candidates)
        if not steps or (settings.dev_share and not dev):
            apart = f", and {len(dev)} by dev_share {settings.dev_share}" * bool(settings.dev_share)
            few = f"{len(train)} rows to train on, by batches of {settings.batch}{apart}"
            few += f", {settings.candidates} candidates each" * (settings.candidates > 1)
            raise FoundryError(f"{export} has {few}: run more shards, or change these")
        used = min(steps, settings.max_steps or steps) * settings.batch
        order = Random(settings.seed).sample(range(len(train)), used * settings.candidates)
        numbers = [train[number] for number in order]
        if dev:
            _write(map(_marked_dev, _in_order(rows, dev, folder)), rows, folder / DEV_ROWS)
        if settings.candidates > 1:
            candidates = folder / CANDIDATES
            _write(map(_marked_dev, _in_order(rows, numbers, folder)), rows, candidates)
            shares = right_shares()
            log(f"{used} of {len(numbers)} rows are chosen by the parent's answers")
            places = _nearest_half(row_ids(candidates), shares, used)
            numbers = [numbers[place] for place in Random(settings.seed).sample(places, used)]
        _write(_in_order(rows, numbers, folder), rows, target)
    return int(pq.read_metadata(target).num_rows) // settings.batch


def row_ids(file: Path) -> list[str]:
    """Ids of the rows of a file that was written here, in their order."""
    column = pq.read_table(file, columns=["extra_info.row_id"]).flatten().column(0)
    ids: list[str] = column.to_pylist()
    return ids


def choice_figures(folder: Path, shares: Mapping[str, float]) -> dict[str, float]:
    """How many candidates are left out, and the share of them, and of the chosen rows, whose
    answers were all right or all wrong: such groups teach no verdict. None without candidates."""
    if not shares:
        return {}
    equal = {row for row, share in shares.items() if share in (0, 1)}
    candidates, chosen = row_ids(folder / CANDIDATES), row_ids(folder / ROWS)
    return {
        "candidates_left_out": float(len(candidates) - len(chosen)),
        "candidates_equal_share": len(equal) / len(candidates),
        "chosen_equal_share": len(equal.intersection(chosen)) / len(chosen),
    }


def _nearest_half(ids: Sequence[str], shares: Mapping[str, float], count: int) -> list[int]:
    """Places of so many rows, those first whose shares are nearest to one half; of equals the first
    ones, and last those that have none."""
    distance = [abs(shares.get(row, 2.0) - 0.5) for row in ids]
    return sorted(range(len(ids)), key=distance.__getitem__)[:count]


class ExportedRows:
    """Rows that are read in order, as often as one likes.

    Pictures are files in the job's folder, each once: hard links into the store where that is
    possible, else copies. So they stay while they are trained on, whatever becomes of store and
    export.

    Args:
        export: its file of rows.
        folder: of the pictures.
        max_pixels: to which verl's loader (qwen_vl_utils) shrinks pictures.

    Raises:
        FoundryError: there is no export, or a file of it is missing.
    """

    def __init__(self, export: Path, folder: Path, images: ImageStore, max_pixels: int) -> None:
        self._export, self._folder, self._images = export, folder, images
        self._max_pixels = max_pixels
        try:
            self._files = stored_files(export, export.parent)
        except FileNotFoundError as error:
            raise FoundryError(f"{error} is missing: materialize `exports`") from error

    def __len__(self) -> int:
        return sum(pq.read_metadata(file).num_rows for file in self._files)

    @property
    def schema(self) -> pa.Schema:
        """That of the export, with the paths of pictures last."""
        stored = pq.read_schema(self._files[0])
        others = stored.remove(stored.get_field_index("images"))
        return others.append(pa.field("images", pa.list_(_IMAGE)))

    def place_pictures(self) -> None:
        """Put the pictures into their folder: those of the store, and what it lacks of the export.

        Raises:
            FoundryError: a picture of the export cannot be read.
        """
        rmtree(self._folder, ignore_errors=True)  # a killed job may have left a part of one
        if not self._place_stored():
            self._place_exported()

    def batches(self) -> Iterator[pa.Table]:
        """The rows, few of them in memory."""
        schema = self.schema
        for batch in self._read(schema.names[:-1], _BATCH):
            ids = batch.column("extra_info").to_pylist()
            pictures = [list(map(self._picture, image_ids(row))) for row in ids]
            field = schema.field("images")
            yield batch.append_column(field, pa.array(pictures, field.type))

    def _picture(self, name: str) -> dict[str, Any]:
        return {"image": str(self._path(name)), "max_pixels": self._max_pixels}

    def _path(self, name: str) -> Path:
        return self._folder.absolute() / self._images.relative_path(name)

    def _read(self, columns: list[str], rows: int) -> Iterator[pa.Table]:
        for file in self._files:
            for batch in pq.ParquetFile(file).iter_batches(rows, columns=columns):
                yield pa.Table.from_batches([batch]).select(columns)

    def _place_stored(self) -> bool:
        """Whether the store has all of them."""
        if not self._images.storage.is_local:
            return False
        complete = True
        for batch in self._read(["extra_info"], _BATCH):
            for row in batch.column(0).to_pylist():
                for name in image_ids(row):
                    complete &= self._path(name).exists() or self._place(name)
        return complete

    def _place(self, name: str) -> bool:
        if not self._images.exists(name):
            return False
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._images.link(name, path)
        return True

    def _place_exported(self) -> None:
        for batch in self._read(["extra_info", "images"], _PICTURES):
            for row in batch.to_pylist():
                names = image_ids(row["extra_info"])
                for name, picture in zip(names, row["images"], strict=True):
                    path = self._path(name)
                    if not path.exists():
                        path.parent.mkdir(parents=True, exist_ok=True)
                        self._copy(picture, path)

    def _copy(self, picture: dict[str, Any], path: Path) -> None:
        if "bytes" in picture:
            path.write_bytes(picture["bytes"])
            return
        source = self._export.parent / picture["image"]
        try:
            copyfile(source, path)
        except OSError as error:
            raise FoundryError(f"{source} cannot be read: materialize `exports`") from error


def image_ids(extra_info: Mapping[str, Any]) -> list[str]:
    """sha256 of a row's pictures, in the order of its placeholders."""
    listed: list[str] | None = extra_info.get("images")
    return [extra_info[name] for name in _CRITIC_IDS] if listed is None else listed


def _fitting(
    rows: ExportedRows,
    count: Callable[..., int],
    folder: Path,
    settings: GrpoSettings,
    log: Callable[[str], object],
) -> tuple[Sequence[int], Sequence[int]]:
    """Numbers of the rows that are trained on, and of those of the other prompts; prompts that are
    too long are in neither."""
    limit, total = settings.prompt_length, len(rows)
    train, dev = array("q"), array("q")
    with LeftOut(folder, f"prompt_length {limit}") as left_out:
        for number, row in enumerate(_as_dicts(rows)):
            name = row["extra_info"]["row_id"]
            sizes = [image_size(Path(picture["image"])) for picture in row["images"]]
            if (tokens := count(row["prompt"], sizes)) > limit:
                left_out.add(row_id=name, tokens=tokens)
            else:
                (dev if _position(name) < settings.dev_share else train).append(number)
        left_out.publish(total, log)
    return train, dev


def _as_dicts(rows: ExportedRows) -> Iterator[dict[str, Any]]:
    for batch in rows.batches():
        yield from batch.select(["prompt", "images", "extra_info"]).to_pylist()


def _position(row_id: str) -> float:
    """Between 0 and 1, by the prompt.

    TRAJECTORY/STEP/ITERATION/COPY, and a prompt has one trajectory; or the prompt's own id.
    """
    return unit_interval(row_id.rsplit("/", 3)[0])


def _in_order(rows: ExportedRows, numbers: Sequence[int], folder: Path) -> Iterator[pa.RecordBatch]:
    """The rows of these numbers, each at most once."""
    positions = np.full(len(rows), -1, np.int64)
    positions[np.asarray(numbers)] = np.arange(len(numbers))
    schema, spilled = rows.schema, folder / ".sorting"
    with_position = schema.append(pa.field("position", pa.int64()))
    chosen = pa.RecordBatchReader.from_batches(with_position, _chosen(rows, positions))
    config: dict[str, Any] = {
        "threads": 1,
        "memory_limit": _SORTING_MEMORY,
        "temp_directory": str(spilled),
    }
    with duckdb.connect(config=config) as connection:
        connection.register("chosen", chosen)
        found = connection.sql("SELECT * EXCLUDE (position) FROM chosen ORDER BY position")
        for batch in found.to_arrow_reader(_BATCH):
            yield batch.cast(schema)
    rmtree(spilled, ignore_errors=True)


def _chosen(rows: ExportedRows, positions: Any) -> Iterator[pa.RecordBatch]:
    """Rows that have a position, with it."""
    start = 0
    for batch in rows.batches():
        of_batch = positions[start : start + len(batch)]
        start += len(batch)
        part = batch.append_column("position", pa.array(of_batch)).filter(of_batch >= 0)
        yield from part.to_batches()


def _write(batches: Iterator[pa.RecordBatch], rows: ExportedRows, target: Path) -> None:
    with (
        atomic_path(target, target.with_suffix(".partial")) as draft,
        pq.ParquetWriter(draft, rows.schema, compression="zstd") as writer,
    ):
        for group in in_row_groups(batches):
            writer.write_table(group.combine_chunks())


def _marked_dev(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose `extra_info` says that they are not trained on."""
    column = batch.column("extra_info")
    marked = pa.array([{**row, "split": "dev"} for row in column.to_pylist()], column.type)
    return batch.set_column(batch.schema.get_field_index("extra_info"), "extra_info", marked)
