"""A trained model as a checkpoint: a folder in Hugging Face format with record and model card.

The folder is complete or not there at all. Weights are hard links into the trainer's folder, or
symbolic links into a download, so that they take no space.
"""

import os
import shutil
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

from ..core.metadata import markdown_section
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
_CARD = Path(__file__).with_name("card.md")
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
    found = {path for pattern in _MODEL_FILES for path in package.model.glob(pattern)}
    files = sorted(path for path in found if path.is_file())
    if not any(path.suffix == ".safetensors" for path in files):
        raise FoundryError(f"{package.model} holds no model in Hugging Face format (.safetensors)")
    try:
        with atomic_path(folder) as draft:
            draft.mkdir()
            _fill(draft, files, package)
    except OSError as error:
        raise FoundryError(f"{folder} cannot be written: {error.strerror or error}") from error


def model_card(recipe: Recipe, record: TrainingRecord) -> str:
    """Markdown with the front matter that Hugging Face reads."""
    origin = {
        "parent": record.parent or "none",
        "data set": ", ".join(recipe.data.tables) if recipe.data else "none",
        "data set version": record.dataset_version or "none",
        "rows": record.dataset_rows,
        "configuration": record.config_hash,
    }
    metrics = {name: f"{value:.6g}" for name, value in record.metrics.items()}
    return _CARD.read_text("utf-8").format(
        name=recipe.name,
        version=recipe.version,
        role=_ROLES[recipe.role],
        date=f"{record.created_at:%Y-%m-%d}",
        origin=markdown_section("Made from", "what", "value", origin),
        metrics=markdown_section("Metrics of training", "metric", "value", metrics),
        settings=yaml.safe_dump(recipe.settings.model_dump(mode="json"), sort_keys=False),
    )


def _fill(folder: Path, files: list[Path], package: CheckpointPackage) -> None:
    for path in files:
        _link(path, folder / path.name, package.owned)
    (folder / "README.md").write_text(package.card, "utf-8")
    manifest = package.manifest.model_dump_json(indent=2, exclude_unset=True)
    (folder / MANIFEST_FILE).write_text(manifest, "utf-8")
    names = sorted(path.name for path in folder.iterdir())
    record = package.record.model_copy(update={"files": names})
    (folder / RECORD).write_text(record.model_dump_json(indent=1), "utf-8")


def _link(source: Path, target: Path, owned: bool) -> None:
    """Hard link an owned file, or copy it where that is impossible; symlink any other."""
    if not owned:
        target.symlink_to(source.absolute())
        return
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)
