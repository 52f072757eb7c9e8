"""LLaMA-Factory's data sets: JSON lists, and `dataset_info.json`, which declares them.

A set of several files is a folder. LLaMA-Factory reads a folder that is `file_name` in the order of
the file system, and infers the types of every file from its rows, so one without pictures, or
whose rows have no `prompt_id`, fails. What is `script_url` may be a folder without a script:
`datasets` then reads the files by their names, with the types of the folder's README.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from warehouse.parted_files import JsonList, PartedFile, Row, stored_files

DATASET_INFO = "dataset_info.json"
_TEXT = {"dtype": "string"}
_MESSAGE = [{"name": name, **_TEXT} for name in ("role", "content")]
_TYPES: dict[str, Any] = {
    "messages": {"list": _MESSAGE},
    "chosen": {"struct": _MESSAGE},
    "rejected": {"struct": _MESSAGE},
    "images": {"list": "string"},
}  # other columns are texts


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
