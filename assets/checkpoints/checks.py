"""Checks of checkpoints: their files are complete, and the policy still judges."""

from collections.abc import Callable

import dagster as dg

from schemas.curation import CRITIC_RL
from schemas.training import ROLLOUTS
from training.registry import CheckpointRegistry
from training.rewards.collapse import LAST_STEPS, find_collapse, judged_prompts

from ..core.checks import Rule, blocking_checks
from ..core.foundry import FoundryResource
from ..core.integrity import Violations
from . import recipes
from .assets import BASE_MODEL, CRITIC_RL_CHECKPOINT, CRITIC_SFT_CHECKPOINT, PLANNER_SFT_CHECKPOINT
from .recipes import Recipe


def _complete(recipe_of: Callable[[FoundryResource], Recipe]) -> dict[str, tuple[str, Rule]]:
    def rule(foundry: FoundryResource, _partition: str | None) -> Violations:
        recipe = recipe_of(foundry)
        if CheckpointRegistry(foundry.home).is_complete(recipe.name, recipe.version):
            return []
        return [{"checkpoint": recipe.name, "version": recipe.version, "problem": "incomplete"}]

    return {"folder_whole": ("The checkpoint's row and all its files exist", rule)}


base_model_checks = blocking_checks(BASE_MODEL, _complete(recipes.base_model))
planner_sft_checkpoint_checks = blocking_checks(
    PLANNER_SFT_CHECKPOINT, _complete(recipes.planner_sft)
)
critic_sft_checkpoint_checks = blocking_checks(CRITIC_SFT_CHECKPOINT, _complete(recipes.critic_sft))
critic_rl_checkpoint_checks = blocking_checks(CRITIC_RL_CHECKPOINT, _complete(recipes.critic_rl))


@dg.asset_check(
    asset=CRITIC_RL_CHECKPOINT.name,
    name="policy_not_collapsed",
    description="The last rollouts distinguish good images from bad ones and rewrite prompts",
)
def policy_not_collapsed(foundry: FoundryResource) -> dg.AssetCheckResult:
    """Not blocking: evaluation measures the effect, and promotion decides by that."""
    rows = foundry.rows(ROLLOUTS, recipes.critic_rl(foundry).version)
    newest = max((row.step for row in rows), default=0)
    last = [row for row in rows if row.step > newest - LAST_STEPS]
    columns = ["row_id", "origin_prompt", "rewritten_prompt"]
    judged = foundry.home.lake.read(CRITIC_RL, columns=columns).to_pylist()
    collapse = find_collapse(last, judged_prompts(judged))
    return dg.AssetCheckResult(
        passed=collapse is None,
        description=f"the policy {collapse}" if collapse else None,
        metadata={"collapse": collapse or "none", "rollouts": len(last)},
    )
