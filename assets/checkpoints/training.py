"""Checkpoints of recipes: trained once, resumed after a kill, never trained twice.

A checkpoint is a folder in Hugging Face format with record and model card, complete or not there at
all. Weights are hard links into the trainer's folder, or symbolic links into a download.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import orjson
import yaml
from pydantic import Field

from inference.agent_prompts.templates import is_file, stored_name
from inference.backends.checkpoint.manifest import (
    MANIFEST_FILE,
    RECORD,
    Manifest,
    PromptName,
    is_complete_folder,
)
from inference.calls.hashing import content_digest
from inference.environments import gpus
from schemas import FoundryError
from schemas.training import CheckpointRow
from schemas.yaml_config import ConfigModel
from training.gpu_assignment import Training
from training.grpo.recipe import GrpoSettings
from training.launch.jobs import TrainingProgress
from training.launch.launcher import run_job
from training.registry import CheckpointRegistry
from training.settings import TrainingSettings
from warehouse.atomic import atomic_path
from warehouse.verify import write_sums

from ..core.foundry import FoundryResource
from ..core.metadata import markdown_section
from ..core.progress import progress_factory
from ..curation.exports.folder import read_card, simulation_note
from .recipes import LINEAGE, Recipe

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
_RECORDED = {"parent", "dataset_version", "config_hash", "created_at", "source"}
_CARD = Path(__file__).with_name("card.md")
_SIMULATED = ("planners", "generators", "critics", "scorers")
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
    source: str | None = Field(None, description="Repository and commit that it was pulled from")


async def ensure_checkpoint(
    context: dg.AssetExecutionContext, foundry: FoundryResource, recipe: Recipe
) -> tuple[CheckpointRow, TrainingRecord]:
    """The checkpoint of a recipe; trained now, or resumed in the same folder, unless it exists.

    Raises FoundryError: parent or data are missing, training failed (with the path of its log),
    there is no model in Hugging Face format, or the folder cannot be written.
    """
    registry = CheckpointRegistry(foundry.home)
    folder = registry.folder(recipe.name, recipe.version)
    if is_complete_folder(folder):
        context.log.info(f"{recipe.name} {recipe.version} exists already: {folder}")
    else:
        manifest = _manifest(foundry, recipe)
        trained = await _train(context, foundry, recipe, manifest)
        _publish(folder, recipe, manifest, _prompts(foundry).values(), *trained)
    record = TrainingRecord.model_validate_json((folder / RECORD).read_bytes())
    row = registry.register(checkpoint_row(recipe.name, recipe.version, folder, record))
    if size := sum(garbage.bytes for garbage in registry.collect_working_files()):
        context.log.info(f"checkpoints of finished trainings were removed: {size / 1e9:,.1f} GB")
    return row, record


def checkpoint_row(name: str, version: str, folder: Path, record: TrainingRecord) -> CheckpointRow:
    """The row of a checkpoint, from the record in its folder."""
    return CheckpointRow(
        name=name,
        version=version,
        metrics=orjson.dumps({**record.metrics, "dataset_rows": record.dataset_rows}).decode(),
        status="candidate",
        uri=str(folder),
        **record.model_dump(include=_RECORDED),
    )


async def _train(
    context: dg.AssetExecutionContext, foundry: FoundryResource, recipe: Recipe, manifest: Manifest
) -> tuple[Path, TrainingRecord]:
    if recipe.job is None:
        assert recipe.weights is not None
        return recipe.weights(), _record(recipe, manifest.model_dump(exclude_unset=True), {}, [])
    if recipe.data:
        recipe.data.require()
    registry, parent, parent_folder = CheckpointRegistry(foundry.home), recipe.parent, None
    if parent:
        if parent.name not in LINEAGE and parent.weights:  # no asset makes it
            await ensure_checkpoint(context, foundry, parent)
        if not registry.is_complete(parent.name, parent.version):
            missing = f"{parent.name} {parent.version}, which does not exist"
            hint = f"materialize {parent.name}"
            raise FoundryError(f"{recipe.name} starts from {missing}: {hint}")
        parent_folder = registry.folder(parent.name, parent.version)
    job_folder = registry.job_folder(recipe.name, recipe.version)
    job = recipe.job(recipe.version, job_folder, parent_folder)
    kind: Training = "rl" if isinstance(recipe.settings, GrpoSettings) else "sft"
    claim = foundry.settings.gpu_assignment.claim(kind, job.gpus, gpus())
    own = {"devices": claim.gpus, "memory": claim.memory, "tracking": foundry.training.tracking}
    job = job.model_copy(update=own)
    progress = progress_factory()(recipe.name)
    outcome = await run_job(context, job, foundry.training.launcher, progress)
    metrics = outcome.metrics | _costs(outcome.metrics, job.gpus_used, foundry.training)
    return outcome.model, _record(recipe, job.payload, metrics, outcome.curves)


def _costs(metrics: Mapping[str, float], gpus: int, settings: TrainingSettings) -> dict[str, float]:
    """GPU hours, and their price where the profile has one."""
    if not gpus or "hours" not in metrics:
        return {}
    hours, price = metrics["hours"] * gpus, settings.gpu_hour_usd
    return {"gpu_hours": hours} | ({"cost_usd": hours * price} if price is not None else {})


def _record(
    recipe: Recipe, config: dict[str, Any], metrics: dict[str, float], curves: list[Any]
) -> TrainingRecord:
    parent, data = recipe.parent, recipe.data
    return TrainingRecord(
        parent=f"{parent.name}/{parent.version}" if parent else None,
        dataset_version=data.version if data else None,
        dataset_rows=data.rows if data else 0,
        config_hash=content_digest(config)[:12],
        metrics=metrics,
        curves=curves,
        created_at=datetime.now(UTC),
    )


def _manifest(foundry: FoundryResource, recipe: Recipe) -> Manifest:
    answers = foundry.training.answers
    return Manifest(
        name=recipe.name,
        version=recipe.version,
        role=recipe.role,
        agent_prompts={name: stored_name(prompt) for name, prompt in _prompts(foundry).items()},
        image_max_pixels=answers.image_max_pixels,
        max_new_tokens={"planner": answers.planner_tokens, "critic": answers.critic_tokens},
    )


def _prompts(foundry: FoundryResource) -> dict[PromptName, str]:
    """The prompts of the training rows: `name@version`, or files."""
    critic, planner = foundry.settings.curation.critic, foundry.settings.curation.planner
    return {
        "critic": critic.agent_prompt,
        "planner_text": planner.text_prompt,
        "planner_interleaved": planner.interleaved_prompt,
    }


def _publish(
    folder: Path,
    recipe: Recipe,
    manifest: Manifest,
    prompts: Iterable[str],
    model: Path,
    record: TrainingRecord,
) -> None:
    found = {path for pattern in _MODEL_FILES for path in model.glob(pattern)}
    files = sorted(path for path in found if path.is_file())
    if not any(path.suffix == ".safetensors" for path in files):
        raise FoundryError(f"{model} holds no model in Hugging Face format (.safetensors)")
    try:
        with atomic_path(folder) as draft:
            draft.mkdir()
            for path in files:
                link_file(path, draft / path.name, owned=recipe.job is not None)
            for prompt in filter(is_file, prompts):
                shutil.copyfile(Path(prompt).expanduser(), draft / stored_name(prompt))
            (draft / "README.md").write_text(_model_card(recipe, record), "utf-8")
            content = manifest.model_dump_json(indent=2, exclude_unset=True)
            (draft / MANIFEST_FILE).write_text(content, "utf-8")
            names = sorted(path.name for path in draft.iterdir())
            record = record.model_copy(update={"files": names})
            (draft / RECORD).write_text(record.model_dump_json(indent=1), "utf-8")
            write_sums(draft)
    except OSError as error:
        raise FoundryError(f"{folder} cannot be written: {error.strerror or error}") from error


def link_file(source: Path, target: Path, owned: bool = True) -> None:
    """Hard link an owned file, or copy it where that is impossible; symlink any other."""
    if not owned:
        target.symlink_to(source.absolute())
        return
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)


def _model_card(recipe: Recipe, record: TrainingRecord) -> str:
    """Markdown with the front matter that Hugging Face reads.

    It says which images are simulated, and which imported rows (name, origin, licence, rows,
    weight) it was trained on.
    """
    data = recipe.data
    sources = read_card(data.folder).get("sources", {}) if data else {}
    imports = sources.get("imports", []) if data and data.mix else []
    note = simulation_note({name: sources.get(name, []) for name in _SIMULATED})
    origin = {
        "parent": record.parent or "none",
        "data set": ", ".join(data.tables) if data else "none",
        **{f"import {n}": about for n, about in enumerate(imports, 1)},
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
        origin=(f"{note}\n" if note else "")
        + markdown_section("Made from", "what", "value", origin),
        metrics=markdown_section("Metrics of training", "metric", "value", metrics),
        settings=yaml.safe_dump(recipe.settings.model_dump(mode="json"), sort_keys=False),
    )
