"""A trained model as a checkpoint: a folder in Hugging Face format with record and model card.

The folder is complete or not there at all. Weights are hard links into the trainer's folder, or
symbolic links into a download, so that they take no space.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import yaml
from pydantic import Field

from inference.backends.checkpoint.manifest import MANIFEST_FILE, Manifest
from schemas import FoundryError
from schemas.yaml_config import ConfigModel
from training.launch.jobs import TrainingProgress
from training.registry import RECORD
from warehouse.atomic import atomic_path

from .recipes import Recipe

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
_CARD = """\
---
library_name: transformers
pipeline_tag: image-text-to-text
---

# {name} {version}

{role} Made by Interleave Foundry, {date}.

{origin}
{metrics}
## Settings

```yaml
{settings}```

## Use

`interleave promote {name} {version}` promotes it. The agent prompts that it was trained with are \
named in `interleave.json`.
"""
_ROLES = {
    "base": "The model that planner and critic start from.",
    "planner": "Turns a request into the steps of an interleaved sequence of images and text.",
    "critic": "Compares an image with the one before it, accepts it or rewrites its prompt.",
    "both": "One agent that plans interleaved sequences and judges their images.",
}


class TrainingRecord(ConfigModel):
    """Result of a training, stored in the checkpoint's folder to restore its row from."""

    parent: str | None = Field(description="name/version of the parent")
    dataset_version: str | None = Field(description="Content hash of the training rows")
    dataset_rows: int = Field(description="Number of training rows")
    config_hash: str = Field(description="Hash of the trainer's configuration")
    metrics: dict[str, float] = Field(description="Final metrics")
    curves: list[TrainingProgress] = Field(description="Progress, a point per report")
    created_at: datetime = Field(description="When training ended")
    files: list[str] = Field([], description="Files of the folder")


@dataclass(frozen=True)
class CheckpointPackage:
    """Content of a checkpoint's folder. `owned`: the model's files may be hard-linked."""

    model: Path
    manifest: Manifest
    card: str
    record: TrainingRecord
    owned: bool = True


def publish(folder: Path, package: CheckpointPackage) -> None:
    """Write a checkpoint's folder.

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


def read_record(folder: Path) -> TrainingRecord:
    """The record of a published checkpoint."""
    return TrainingRecord.model_validate_json((folder / RECORD).read_bytes())


def model_card(recipe: Recipe, record: TrainingRecord) -> str:
    """Markdown with the front matter that Hugging Face reads."""
    origin = {
        "parent": record.parent or "none",
        "data set": ", ".join(recipe.data.tables) if recipe.data else "none",
        "data set version": record.dataset_version or "none",
        "rows": record.dataset_rows,
        "configuration": record.config_hash,
    }
    return _CARD.format(
        name=recipe.name,
        version=recipe.version,
        role=_ROLES[recipe.role],
        date=f"{record.created_at:%Y-%m-%d}",
        origin=_table("Made from", "what", origin),
        metrics=_table("Metrics of training", "metric", record.metrics),
        settings=yaml.safe_dump(recipe.settings.model_dump(mode="json"), sort_keys=False),
    )


def _table(title: str, key: str, rows: Mapping[str, object]) -> str:
    lines = [f"## {title}", "", f"| {key} | value |", "| --- | --- |"]
    for name, value in rows.items():
        lines.append(f"| {name} | {f'{value:.6g}' if isinstance(value, float) else value} |")
    return "\n".join([*lines, ""])


def _fill(folder: Path, files: list[Path], package: CheckpointPackage) -> None:
    for path in files:
        _link(path, folder / path.name, package.owned)
    (folder / "README.md").write_text(package.card, "utf-8")
    manifest = package.manifest.model_dump_json(indent=2, exclude_unset=True)
    (folder / MANIFEST_FILE).write_text(manifest, "utf-8")
    names = sorted(path.name for path in folder.iterdir())
    record = package.record.model_copy(update={"files": names})
    (folder / RECORD).write_text(record.model_dump_json(indent=1), "utf-8")


def _model_files(model: Path) -> Iterator[Path]:
    for pattern in _MODEL_FILES:
        yield from (path for path in model.glob(pattern) if path.is_file())


def _link(source: Path, target: Path, owned: bool) -> None:
    """Hard link an owned file, or copy it where that is impossible; symlink any other."""
    if not owned:
        target.symlink_to(source.absolute())
        return
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)
