"""The assets from data sets to checkpoints: base model, planner SFT, critic SFT, critic GRPO."""

import asyncio
from collections.abc import Callable
from typing import Any

import dagster as dg

from schemas.training import CHECKPOINTS, ROLLOUTS, RolloutRow
from training.grpo.driver import ROLLOUTS as ROLLOUT_JOURNAL
from training.registry import CheckpointRegistry
from training.rewards.rollouts import rollouts_table

from ..core.foundry import FoundryResource
from ..core.node import Node, node
from . import recipes
from .metadata import checkpoint_metadata, rollout_samples
from .recipes import Recipe
from .training import ensure_checkpoint


def _checkpoint_node(recipe_of: Callable[[FoundryResource], Recipe], **fields: Any) -> Node:
    """A node whose content is its recipe's version, if that checkpoint is complete."""

    def output_hashes(foundry: FoundryResource) -> list[str | None]:
        recipe, lake = recipe_of(foundry), foundry.home.lake
        complete = CheckpointRegistry(foundry.home).is_complete(recipe.name, recipe.version)
        has_rollouts = ROLLOUTS in fields.get("tables", ())
        rollouts = [lake.content_hash(ROLLOUTS, recipe.version)] if has_rollouts else []
        return [recipe.version if complete else None, *rollouts]

    shared = {
        "group": "checkpoints",
        "tables": (CHECKPOINTS,),
        "kinds": frozenset({"pytorch", "huggingface"}),
        "pool": "gpu_train",
        "inputs": lambda foundry, _instance: recipe_of(foundry).version,
        "output_hashes": output_hashes,
    }
    return node(**shared | fields)


BASE_MODEL = _checkpoint_node(
    recipes.base_model,
    name="base_model",
    description="The model that planner and critic start from: packaged, pretrained here to "
    "describe images, or downloaded.",
    sections=("training.base_model",),
)
PLANNER_SFT_CHECKPOINT = _checkpoint_node(
    recipes.planner_sft,
    name="planner_sft_checkpoint",
    description="The planner: the base model fine-tuned on plans with LLaMA-Factory.",
    deps=("base_model", "planner_sft", "exports"),
    sections=("training.planner_sft",),
)
CRITIC_SFT_CHECKPOINT = _checkpoint_node(
    recipes.critic_sft,
    name="critic_sft_checkpoint",
    description="The critic before GRPO: the base model fine-tuned on verdicts and rewritten "
    "prompts with LLaMA-Factory.",
    deps=("base_model", "critic_sft", "exports"),
    sections=("training.critic_sft",),
)
CRITIC_RL_CHECKPOINT = _checkpoint_node(
    recipes.critic_rl,
    name="critic_rl_checkpoint",
    description="The critic: trained with verl's GRPO, rewarded by what its verdicts and rewritten "
    "prompts lead to (paper, section 3.4).",
    tables=(CHECKPOINTS, ROLLOUTS),
    deps=("critic_sft_checkpoint", "critic_rl", "exports"),
    sections=("training.critic_rl",),
)


def _checkpoint_asset(
    declared: Node, recipe_of: Callable[[FoundryResource], Recipe]
) -> dg.AssetsDefinition:
    @dg.asset(**declared.asset_args())
    def checkpoint(
        context: dg.AssetExecutionContext, foundry: FoundryResource
    ) -> dg.MaterializeResult:
        stored = asyncio.run(ensure_checkpoint(context, foundry, recipe_of(foundry)))
        return declared.describe(context, foundry, {"checkpoints": 1}, checkpoint_metadata(stored))

    return checkpoint


base_model = _checkpoint_asset(BASE_MODEL, recipes.base_model)
planner_sft_checkpoint = _checkpoint_asset(PLANNER_SFT_CHECKPOINT, recipes.planner_sft)
critic_sft_checkpoint = _checkpoint_asset(CRITIC_SFT_CHECKPOINT, recipes.critic_sft)


@dg.asset(**CRITIC_RL_CHECKPOINT.asset_args())
def critic_rl_checkpoint(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    recipe = recipes.critic_rl(foundry)
    stored = asyncio.run(ensure_checkpoint(context, foundry, recipe))
    rows = _store_rollouts(foundry, recipe)
    metadata = checkpoint_metadata(stored) | {"samples": rollout_samples(rows)}
    counts = {"checkpoints": 1, "rollouts": len(rows)}
    return CRITIC_RL_CHECKPOINT.describe(context, foundry, counts, metadata)


def _store_rollouts(foundry: FoundryResource, recipe: Recipe) -> list[RolloutRow]:
    """Write a training's rollouts from its journal to the lake; returns those stored."""
    folder = CheckpointRegistry(foundry.home).job_folder(recipe.name, recipe.version)
    if (folder / ROLLOUT_JOURNAL).exists():
        foundry.home.lake.write(ROLLOUTS, rollouts_table(folder / ROLLOUT_JOURNAL), recipe.version)
    return foundry.rows(ROLLOUTS, recipe.version)
