"""Making the checkpoint of a recipe: trained once, resumed where it was left, never made twice."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import orjson

from inference.agent_prompts.templates import version_of
from schemas import FoundryError
from schemas.training import CheckpointRow
from training.launch import TrainerJob, launcher_of
from training.registry import CheckpointRegistry, is_complete

from ..core.foundry import FoundryResource
from ..core.progress import progress_factory
from .card import model_card
from .publish import Package, Record, now, publish, record_of
from .recipes import Recipe


@dataclass(frozen=True)
class EnsuredCheckpoint:
    """A checkpoint that is there. `fresh` is False when it was there already."""

    row: CheckpointRow
    folder: Path
    record: Record
    fresh: bool


async def ensure_checkpoint(
    context: dg.AssetExecutionContext, foundry: FoundryResource, recipe: Recipe
) -> EnsuredCheckpoint:
    """The checkpoint of a recipe; trained now unless it is there.

    A killed training is taken up again where it was, in the same folder.

    Raises:
        FoundryError: parent or data are not there, or training failed (with the path of its log).
    """
    registry = CheckpointRegistry(foundry.home)
    folder = registry.folder(recipe.name, recipe.version)
    fresh = not is_complete(folder)
    if fresh:
        publish(folder, await _package(context, foundry, recipe))
    else:
        context.log.info(f"{recipe.name} {recipe.version} is there already: {folder}")
    record = record_of(folder)
    row = registry.register(_row(recipe, folder, record))
    return EnsuredCheckpoint(row, folder, record, fresh)


async def _package(
    context: dg.AssetExecutionContext, foundry: FoundryResource, recipe: Recipe
) -> Package:
    about = _about(foundry, recipe)
    if recipe.job is None:
        assert recipe.ready is not None
        record = _record(recipe, _digest(about), {}, [])
        return Package(recipe.ready(), about, model_card(recipe, record), record, owned=False)
    job = _job(foundry, recipe)
    launcher = launcher_of(foundry.training.launcher)
    outcome = await launcher.run(context, job, progress_factory()(recipe.name))
    record = _record(recipe, _digest(job.payload), outcome.metrics, outcome.curves)
    return Package(outcome.model, about, model_card(recipe, record), record)


def _job(foundry: FoundryResource, recipe: Recipe) -> TrainerJob:
    assert recipe.job is not None
    if recipe.data:
        recipe.data.require()
    folder = CheckpointRegistry(foundry.home).job_folder(recipe.name, recipe.version)
    return recipe.job(recipe.version, folder, _parent_folder(foundry, recipe))


def _parent_folder(foundry: FoundryResource, recipe: Recipe) -> Path | None:
    if recipe.parent is None:
        return None
    registry, name, version = (
        CheckpointRegistry(foundry.home),
        recipe.parent.name,
        recipe.parent.version,
    )
    if not registry.whole(name, version):
        raise FoundryError(
            f"{recipe.name} starts from {name} {version}, which is not there: materialize {name}"
        )
    return registry.folder(name, version)


def _record(recipe: Recipe, config: str, metrics: dict[str, float], curves: list[Any]) -> Record:
    parent, data = recipe.parent, recipe.data
    return Record(
        parent=f"{parent.name}/{parent.version}" if parent else None,
        dataset_version=data.version if data else None,
        dataset_rows=data.rows if data else 0,
        config_hash=config,
        metrics=metrics,
        curves=curves,
        created_at=now(),
    )


def _row(recipe: Recipe, folder: Path, record: Record) -> CheckpointRow:
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


def _about(foundry: FoundryResource, recipe: Recipe) -> dict[str, Any]:
    """`interleave.json`: how the model wants to be asked."""
    curation, answers = foundry.settings.curation, foundry.training.answers
    return {
        "name": recipe.name,
        "version": recipe.version,
        "role": recipe.role,
        "agent_prompts": {
            "critic": version_of(curation.critic.agent_prompt),
            "planner_text": version_of(curation.planner.text_prompt),
            "planner_interleaved": version_of(curation.planner.interleaved_prompt),
        },
        "image_max_pixels": answers.image_max_pixels,
        "max_new_tokens": {"planner": answers.planner_tokens, "critic": answers.critic_tokens},
    }


def _digest(facts: object) -> str:
    packed = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS, default=str)
    return hashlib.sha256(packed).hexdigest()[:12]
