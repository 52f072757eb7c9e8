"""The trainings of the ablation: each after its parent, two at a time where that pays."""

import asyncio
from collections.abc import Iterable

import dagster as dg

from training.grpo.recipe import GrpoSettings

from ..checkpoints.recipes import Recipe
from ..checkpoints.training import ensure_checkpoint
from ..core.foundry import FoundryResource
from .ablation_recipes import checkpoint_recipe
from .variants import Variant


async def train_variants(
    context: dg.AssetExecutionContext, foundry: FoundryResource, variants: Iterable[Variant]
) -> None:
    """Train the variants' checkpoints that do not exist yet; a killed training resumes.

    With `training.side_by_side` two are trained at a time, of which one at most is GRPO: that uses
    more than one core.
    """
    recipes = _in_order(foundry, variants)
    slots = asyncio.Semaphore(2 if foundry.training.side_by_side else 1)
    reinforcement = asyncio.Semaphore(1)
    trained: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def train(recipe: Recipe, parent: asyncio.Task[None] | None) -> None:
        if parent:
            await parent
        own = reinforcement if isinstance(recipe.settings, GrpoSettings) else asyncio.Semaphore(1)
        async with own, slots:
            await ensure_checkpoint(context, foundry, recipe)

    for recipe in recipes:
        origin = recipe.parent
        parent = trained.get((origin.name, origin.version)) if origin else None
        trained[recipe.name, recipe.version] = asyncio.create_task(train(recipe, parent))
    await asyncio.gather(*trained.values())


def _in_order(foundry: FoundryResource, variants: Iterable[Variant]) -> list[Recipe]:
    """Trainings of the variants' checkpoints and their parents, parents first, each once."""
    found: dict[tuple[str, str], Recipe] = {}

    def add(recipe: Recipe) -> None:
        if recipe.role == "base" or recipe.job is None:  # the asset `base_model`, or given weights
            return
        if recipe.parent:
            add(recipe.parent)
        found.setdefault((recipe.name, recipe.version), recipe)

    for variant in variants:
        for reference in variant.agents:
            add(checkpoint_recipe(foundry, reference, variant.training_seed))
    return list(found.values())
