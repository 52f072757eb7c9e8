"""Checkpoints of recipes: trained once, resumed after a kill, never trained twice."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import orjson

from inference.agent_prompts.templates import version_of
from inference.backends.checkpoint.manifest import Manifest
from inference.engine.hashing import content_digest
from schemas import FoundryError
from schemas.training import CheckpointRow
from training.launch import create_launcher
from training.registry import RECORD, CheckpointRegistry, is_complete_folder

from ..core.foundry import FoundryResource
from ..core.progress import progress_factory
from .publish import CheckpointPackage, TrainingRecord, model_card, publish
from .recipes import Recipe


@dataclass(frozen=True)
class StoredCheckpoint:
    """A registered checkpoint and its folder."""

    row: CheckpointRow
    folder: Path
    record: TrainingRecord


async def ensure_checkpoint(
    context: dg.AssetExecutionContext, foundry: FoundryResource, recipe: Recipe
) -> StoredCheckpoint:
    """The checkpoint of a recipe; trained now unless it exists.

    A killed training is resumed in the same folder.

    Raises:
        FoundryError: parent or data are missing, or training failed (with the path of its log).
    """
    registry = CheckpointRegistry(foundry.home)
    folder = registry.folder(recipe.name, recipe.version)
    if is_complete_folder(folder):
        context.log.info(f"{recipe.name} {recipe.version} exists already: {folder}")
    else:
        publish(folder, await _train(context, foundry, recipe))
    record = TrainingRecord.model_validate_json((folder / RECORD).read_bytes())
    return StoredCheckpoint(registry.register(_row(recipe, folder, record)), folder, record)


async def _train(
    context: dg.AssetExecutionContext, foundry: FoundryResource, recipe: Recipe
) -> CheckpointPackage:
    manifest = _manifest(foundry, recipe)
    if recipe.job is None:
        assert recipe.weights is not None
        record = _record(recipe, manifest.model_dump(exclude_unset=True), {}, [])
        card = model_card(recipe, record)
        return CheckpointPackage(recipe.weights(), manifest, card, record, owned=False)
    if recipe.data:
        recipe.data.require()
    folder = CheckpointRegistry(foundry.home).job_folder(recipe.name, recipe.version)
    job = recipe.job(recipe.version, folder, _parent_folder(foundry, recipe))
    launcher = create_launcher(foundry.training.launcher)
    outcome = await launcher.run(context, job, progress_factory()(recipe.name))
    record = _record(recipe, job.payload, outcome.metrics, outcome.curves)
    return CheckpointPackage(outcome.model, manifest, model_card(recipe, record), record)


def _parent_folder(foundry: FoundryResource, recipe: Recipe) -> Path | None:
    if recipe.parent is None:
        return None
    registry, parent = CheckpointRegistry(foundry.home), recipe.parent
    if not registry.is_complete(parent.name, parent.version):
        raise FoundryError(
            f"{recipe.name} starts from {parent.name} {parent.version}, which does not exist: "
            f"materialize {parent.name}"
        )
    return registry.folder(parent.name, parent.version)


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


def _row(recipe: Recipe, folder: Path, record: TrainingRecord) -> CheckpointRow:
    metrics = {**record.metrics, "dataset_rows": record.dataset_rows}
    return CheckpointRow(
        name=recipe.name,
        version=recipe.version,
        parent=record.parent,
        dataset_version=record.dataset_version,
        config_hash=record.config_hash,
        metrics=orjson.dumps(metrics).decode(),
        status="candidate",
        uri=str(folder),
        created_at=record.created_at,
    )


def _manifest(foundry: FoundryResource, recipe: Recipe) -> Manifest:
    curation, answers = foundry.settings.curation, foundry.training.answers
    return Manifest(
        name=recipe.name,
        version=recipe.version,
        role=recipe.role,
        agent_prompts={
            "critic": version_of(curation.critic.agent_prompt),
            "planner_text": version_of(curation.planner.text_prompt),
            "planner_interleaved": version_of(curation.planner.interleaved_prompt),
        },
        image_max_pixels=answers.image_max_pixels,
        max_new_tokens={"planner": answers.planner_tokens, "critic": answers.critic_tokens},
    )
