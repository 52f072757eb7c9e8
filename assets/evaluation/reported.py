"""Recipes whose numbers on test items were reported, and settings that changed after that.

A version on more data is no choice of settings, and neither is one of a reduced size (`make demo`).
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from inference.backends.checkpoint.manifest import is_agent_of
from inference.calls.hashing import content_digest
from schemas.training import REPORTED_RECIPES, EvaluationRow, ReportedRecipeRow

from ..checkpoints.recipes import LINEAGE, Recipe
from ..core.foundry import FoundryResource
from .items import is_test
from .variants import CRITIC_RL, CRITIC_SFT, PLANNER


def record_reported(foundry: FoundryResource, rows: Iterable[EvaluationRow]) -> int:
    """Store which of the newest recipes have test numbers in `rows`; returns how many."""
    if foundry.reduced:
        return 0
    agents = {
        agent for row in rows if is_test(row.benchmark) for agent in (row.planner, row.critic)
    }
    lake, reported = foundry.home.lake, 0
    for recipe in _newest_recipes(foundry):
        identity, partition = f"{recipe.name}@{recipe.version}", f"{recipe.name}-{recipe.version}"
        if not any(is_agent_of(identity, agent) for agent in agents):
            continue
        reported += 1
        if not lake.exists(REPORTED_RECIPES, partition):
            row = ReportedRecipeRow(
                name=recipe.name,
                version=recipe.version,
                settings_hash=settings_hash(recipe),
                reported_at=datetime.now(UTC),
            )
            lake.write(REPORTED_RECIPES, [row], partition)
    return reported


def changed_since_reported(foundry: FoundryResource) -> list[dict[str, object]]:
    """Per newest recipe, the versions with other settings whose test numbers were reported."""
    if foundry.reduced:
        return []
    reported = foundry.rows(REPORTED_RECIPES)
    return [
        {
            "checkpoint": recipe.name,
            "version": recipe.version,
            "reported before": row.version,
            "at": f"{row.reported_at:%Y-%m-%d %H:%M}",
        }
        for recipe in _newest_recipes(foundry)
        for row in reported
        if row.name == recipe.name and row.settings_hash != settings_hash(recipe)
    ]


def settings_hash(recipe: Recipe) -> str:
    """Hash of the settings of a recipe and of its parents, whatever data they are trained on."""
    parent = settings_hash(recipe.parent) if recipe.parent else None
    settings = recipe.settings.model_dump(mode="json")
    return content_digest([settings, recipe.inputs, parent])[:12]


def _newest_recipes(foundry: FoundryResource) -> Iterator[Recipe]:
    return (LINEAGE[name](foundry) for name in (PLANNER, CRITIC_SFT, CRITIC_RL))
