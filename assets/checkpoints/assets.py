"""From data sets to checkpoints: base model, planner SFT, critic SFT, critic GRPO."""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from schemas.training import CHECKPOINTS, ROLLOUTS, RolloutRow
from training.grpo.driver import ROLLOUTS as JOURNAL
from training.registry import CheckpointRegistry
from training.rewards.rollouts import rollouts_table

from ..core.foundry import FoundryResource, run_async
from ..core.node import Node, node, picture, sample
from . import recipes
from .curves import training_curves
from .recipes import Recipe
from .training import EnsuredCheckpoint, ensure_checkpoint

_SHOWN = 6


def _checkpoint_node(recipe_of: Callable[[FoundryResource], Recipe], **special: Any) -> Node:
    """A node whose content is the version that its recipe says, once that is there."""

    def holds(foundry: FoundryResource) -> list[str | None]:
        recipe, lake = recipe_of(foundry), foundry.home.lake
        whole = CheckpointRegistry(foundry.home).whole(recipe.name, recipe.version)
        rollouts = ROLLOUTS in special.get("tables", ())
        kept = [lake.content_hash(ROLLOUTS, recipe.version)] if rollouts else []
        return [recipe.version if whole else None, *kept]

    shared = {
        "group": "checkpoints",
        "tables": (CHECKPOINTS,),
        "kinds": frozenset({"pytorch", "huggingface"}),
        "pool": "gpu_train",
        "facts": lambda foundry, _instance: recipe_of(foundry).version,
        "holds": holds,
    }
    return node(**shared | special)


BASE_MODEL = _checkpoint_node(
    recipes.base_model,
    name="base_model",
    description="The model that planner and critic start from: shipped, taught here to say what "
    "is in a picture, or downloaded.",
    sections=("training.base_model",),
)
PLANNER_SFT_CHECKPOINT = _checkpoint_node(
    recipes.planner_sft,
    name="planner_sft_checkpoint",
    description="The planner: the base model, taught plans with LLaMA-Factory.",
    deps=("base_model", "planner_sft", "exports"),
    sections=("training.planner_sft",),
)
CRITIC_SFT_CHECKPOINT = _checkpoint_node(
    recipes.critic_sft,
    name="critic_sft_checkpoint",
    description="The critic's first half: the base model, taught verdicts and rewrites with "
    "LLaMA-Factory.",
    deps=("base_model", "critic_sft", "exports"),
    sections=("training.critic_sft",),
)
CRITIC_RL_CHECKPOINT = _checkpoint_node(
    recipes.critic_rl,
    name="critic_rl_checkpoint",
    description="The critic: reinforced with verl's GRPO by what its verdicts and rewrites lead "
    "to (paper, section 3.4).",
    tables=(CHECKPOINTS, ROLLOUTS),
    deps=("critic_sft_checkpoint", "critic_rl", "exports"),
    sections=("training.critic_rl",),
)


@dg.asset(**BASE_MODEL.asset_args())
def base_model(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    checkpoint = run_async(ensure_checkpoint(context, foundry, recipes.base_model(foundry)))
    return BASE_MODEL.describe(context, foundry, {"checkpoints": 1}, _metadata(checkpoint))


@dg.asset(**PLANNER_SFT_CHECKPOINT.asset_args())
def planner_sft_checkpoint(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    checkpoint = run_async(ensure_checkpoint(context, foundry, recipes.planner_sft(foundry)))
    metadata = _metadata(checkpoint)
    return PLANNER_SFT_CHECKPOINT.describe(context, foundry, {"checkpoints": 1}, metadata)


@dg.asset(**CRITIC_SFT_CHECKPOINT.asset_args())
def critic_sft_checkpoint(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    checkpoint = run_async(ensure_checkpoint(context, foundry, recipes.critic_sft(foundry)))
    metadata = _metadata(checkpoint)
    return CRITIC_SFT_CHECKPOINT.describe(context, foundry, {"checkpoints": 1}, metadata)


@dg.asset(**CRITIC_RL_CHECKPOINT.asset_args())
def critic_rl_checkpoint(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    recipe = recipes.critic_rl(foundry)
    checkpoint = run_async(ensure_checkpoint(context, foundry, recipe))
    rows = keep_rollouts(foundry, recipe)
    metadata = _metadata(checkpoint) | {"samples": _rollout_samples(rows)}
    counts = {"checkpoints": 1, "rollouts": len(rows)}
    return CRITIC_RL_CHECKPOINT.describe(context, foundry, counts, metadata)


def keep_rollouts(foundry: FoundryResource, recipe: Recipe) -> list[RolloutRow]:
    """The rollouts of a run, from its journal into the lake."""
    folder = CheckpointRegistry(foundry.home).job_folder(recipe.name, recipe.version)
    if (folder / JOURNAL).exists():
        foundry.home.lake.write(ROLLOUTS, rollouts_table(folder / JOURNAL), recipe.version)
    return foundry.rows(ROLLOUTS, recipe.version)


def _metadata(checkpoint: EnsuredCheckpoint) -> dict[str, Any]:
    row, record = checkpoint.row, checkpoint.record
    curves = training_curves(record.curves)
    return {
        "version": row.version,
        "status": row.status,
        "checkpoint": dg.MetadataValue.path(str(checkpoint.folder)),
        "parent": row.parent or "none",
        "data_set_version": row.dataset_version or "none",
        "data_set_rows": record.dataset_rows,
        "card": dg.MetadataValue.md((checkpoint.folder / "README.md").read_text("utf-8")),
        **({"curves": picture(curves, "Loss and reward by step")} if curves else {}),
        **{f"metrics/{name}": value for name, value in record.metrics.items()},
    }


def _rollout_samples(rows: Sequence[RolloutRow]) -> dg.MetadataValue:
    """The last answers that were sampled, with what they earned."""
    columns = ("step", "status", "truth", "verdict", "refined_prompt", "reward", "response")
    return sample([{name: getattr(row, name) for name in columns} for row in rows[-_SHOWN:]])
