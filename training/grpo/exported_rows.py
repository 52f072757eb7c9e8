"""The rows of the export for verl, batch by batch, with their pictures as files of the job."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import FoundryError
from warehouse import ImageStore
from warehouse.parted_files import stored_files

from .recipe import ROWS

_BATCH = 256  # rows in memory
_PICTURES = 16  # rows with embedded pictures in memory
_IDS = ("origin_image", "edited_image")  # in the order of placeholders
_IMAGE = pa.struct([("image", pa.string()), ("max_pixels", pa.int64())])


class ExportedRows:
    """Rows that are read in order, as often as one likes.

    Pictures are files in the job's folder, each once: hard links into the store where that is
    possible, else copies. So they stay while they are trained on, whatever becomes of store and
    export.

    Args:
        folder: of the pictures.
        max_pixels: to which verl's loader (qwen_vl_utils) shrinks pictures.

    Raises:
        FoundryError: there is no export, or a file of it is missing.
    """

    def __init__(self, export: Path, folder: Path, images: ImageStore, max_pixels: int) -> None:
        self._export, self._folder, self._images = export, folder, images
        self._max_pixels = max_pixels
        try:
            self._files = stored_files(export / ROWS, export)
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
            pictures = [[self._picture(row[name]) for name in _IDS] for row in ids]
            yield batch.append_column(schema.field("images"), [pictures])

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
                for name in (row[key] for key in _IDS):
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
                for key, picture in zip(_IDS, row["images"], strict=True):
                    path = self._path(row["extra_info"][key])
                    if not path.exists():
                        path.parent.mkdir(parents=True, exist_ok=True)
                        self._copy(picture, path)

    def _copy(self, picture: dict[str, Any], path: Path) -> None:
        if "bytes" in picture:
            path.write_bytes(picture["bytes"])
            return
        source = self._export / picture["image"]
        try:
            copyfile(source, path)
        except OSError as error:
            raise FoundryError(f"{source} cannot be read: materialize `exports`") from error
