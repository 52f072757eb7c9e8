"""Estimates supervised fine-tuning before it runs: rows, steps and time."""

import json
from dataclasses import dataclass
from math import ceil

from schemas import Table
from schemas.curation import CRITIC_SFT, PLANNER_SFT
from training.registry import CheckpointRegistry
from training.sft.recipe import SftSettings, read_recipe

from ..core.foundry import FoundryResource
from ..core.stage_needs import base_size, lora_rank, sft_row_tokens
from .grpo_estimate import rows_to_come
from .recipes import LINEAGE

_CPU_SECONDS = 0.07  # of a row: the packaged model on two cores
# Rows of a trajectory where there are none to measure: those of 100 prompts of the sketch world.
_SETS: dict[str, tuple[Table, float]] = {
    "planner_sft": (PLANNER_SFT, 1.8),
    "critic_sft": (CRITIC_SFT, 3.9),
}


@dataclass(frozen=True)
class SftEstimate:
    """A training that is to come."""

    name: str
    rows: int
    steps: int
    seconds: float | None  # None: the size of the base model is unknown before its download
    measured: str | None  # version of the checkpoint whose steps took as long; None: assumed
    gpus: int

    @property
    def gpu_hours(self) -> float:
        return (self.seconds or 0.0) * self.gpus / 3600


def sft_estimates(foundry: FoundryResource, trajectories: int) -> list[SftEstimate]:
    """Trainings of planner and critic, after so many more trajectories, unless they are done."""
    if foundry.settings.training is None:
        return []
    estimates = []
    for name, (table, assumed) in _SETS.items():
        registry, version = CheckpointRegistry(foundry.home), LINEAGE[f"{name}_checkpoint"](foundry)
        if trajectories or not registry.is_complete(f"{name}_checkpoint", version.version):
            rows = rows_to_come(foundry, table, trajectories, assumed)
            estimates.append(_estimate(foundry, name, rows))
    return [each for each in estimates if each.steps]


def _estimate(foundry: FoundryResource, name: str, rows: int) -> SftEstimate:
    settings: SftSettings = getattr(foundry.training, name)
    recipe = read_recipe(settings)
    trained = rows - round(rows * settings.dev_share)
    epochs = float(recipe.options.get("num_train_epochs", 3))  # LLaMA-Factory's own
    steps = recipe.options.get("max_steps") or ceil(trained * epochs / recipe.batch)
    a_step, measured = _measured_step(foundry, f"{name}_checkpoint")
    if a_step is None:
        a_step = _assumed_step(foundry, name, settings)
    seconds = None if a_step is None else steps * a_step
    gpus = recipe.gpus * settings.nodes
    return SftEstimate(name, rows, steps if rows else 0, seconds, measured, gpus)


def _measured_step(foundry: FoundryResource, checkpoint: str) -> tuple[float | None, str | None]:
    """Seconds of a step of the newest training of this home, with its version."""
    for row in reversed(CheckpointRegistry(foundry.home).rows(checkpoint)):
        metrics = json.loads(row.metrics)
        if metrics.get("steps") and metrics.get("seconds"):
            return metrics["seconds"] / metrics["steps"], row.version
    return None, None


def _assumed_step(foundry: FoundryResource, name: str, settings: SftSettings) -> float | None:
    recipe, size = read_recipe(settings), base_size(foundry.settings)
    if not recipe.gpus:
        return _CPU_SECONDS * recipe.batch
    if size is None:
        return None
    tokens = recipe.batch * sft_row_tokens(name, recipe)
    return size.training_seconds(tokens, recipe.gpus * settings.nodes, lora_rank(settings))
