"""A trained model becomes a checkpoint: a folder in Hugging Face format that says what it is.

It is written aside and renamed, so it is there whole or not at all. Weights are hard links into the
trainer's folder, or symbolic ones into a download, so they cost no space.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from pydantic import Field

from schemas import FoundryError
from schemas.yaml_config import ConfigModel
from training.launch.jobs import TrainingProgress
from training.registry import ABOUT, RECORD
from warehouse.atomic import atomic_path

_MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "*tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "*processor_config.json",
    "chat_template*",
)


class Record(ConfigModel):
    """What training came to; kept in the checkpoint's folder, so that its row can be made again."""

    parent: str | None = Field(description="name/version of the parent")
    dataset_version: str | None = Field(description="Content hash of the training rows")
    dataset_rows: int = Field(description="Training rows there were")
    config_hash: str = Field(description="Hash of the trainer's configuration")
    metrics: dict[str, float] = Field(description="Final metrics")
    curves: list[TrainingProgress] = Field(description="Progress, a point a report")
    created_at: datetime = Field(description="When training ended")
    files: list[str] = Field(default=[], description="Files of the folder")


@dataclass(frozen=True)
class Package:
    """What goes into a checkpoint's folder. `owned`: the model's files are ours to link hard."""

    model: Path
    about: dict[str, Any]
    card: str
    record: Record
    owned: bool = True


def publish(folder: Path, package: Package) -> None:
    """Put a checkpoint's folder in its place.

    Raises:
        FoundryError: there is no model in Hugging Face format, or the folder cannot be written.
    """
    files = sorted(set(_model_files(package.model)))
    if not any(path.suffix == ".safetensors" for path in files):
        raise FoundryError(f"{package.model} holds no model in Hugging Face format (.safetensors)")
    try:
        with atomic_path(folder) as draft:
            draft.mkdir()
            _fill(draft, files, package)
    except OSError as error:
        raise FoundryError(f"{folder} cannot be written: {error.strerror or error}") from error


def record_of(folder: Path) -> Record:
    """The record of a published checkpoint."""
    return Record.model_validate_json((folder / RECORD).read_bytes())


def now() -> datetime:
    return datetime.now(UTC)


def _fill(folder: Path, files: list[Path], package: Package) -> None:
    for path in files:
        _place(path, folder / path.name, package.owned)
    (folder / "README.md").write_text(package.card, "utf-8")
    (folder / ABOUT).write_bytes(orjson.dumps(package.about, option=orjson.OPT_INDENT_2))
    names = sorted(path.name for path in folder.iterdir())
    record = package.record.model_copy(update={"files": names})
    (folder / RECORD).write_text(record.model_dump_json(indent=1), "utf-8")


def _model_files(model: Path) -> Iterator[Path]:
    for pattern in _MODEL_FILES:
        yield from (path for path in model.glob(pattern) if path.is_file())


def _place(source: Path, target: Path, owned: bool) -> None:
    """Hard link our own file where the file system can, else copy it; link to somebody else's."""
    if not owned:
        target.symlink_to(source.absolute())
        return
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)
