"""What must hold of a checkpoint: it is there whole, and its policy has not given up judging."""

from collections.abc import Callable, Sequence

import dagster as dg

from schemas.curation import CRITIC_RL
from schemas.training import ROLLOUTS, RolloutRow
from training.registry import CheckpointRegistry
from training.rewards.collapse import LAST_STEPS, collapsed, judged_prompts

from ..core import integrity
from ..core.checks import Rule, blocking_checks
from ..core.foundry import FoundryResource
from . import recipes
from .assets import BASE_MODEL, CRITIC_RL_CHECKPOINT, CRITIC_SFT_CHECKPOINT, PLANNER_SFT_CHECKPOINT
from .recipes import Recipe


def _whole(recipe_of: Callable[[FoundryResource], Recipe]) -> dict[str, tuple[str, Rule]]:
    def rule(foundry: FoundryResource, _shard: str | None) -> integrity.Broken:
        recipe = recipe_of(foundry)
        if CheckpointRegistry(foundry.home).whole(recipe.name, recipe.version):
            return []
        return [{"checkpoint": recipe.name, "version": recipe.version, "problem": "incomplete"}]

    return {"folder_whole": ("The checkpoint's row and all its files are there", rule)}


base_model_checks = blocking_checks(BASE_MODEL, _whole(recipes.base_model))
planner_sft_checkpoint_checks = blocking_checks(PLANNER_SFT_CHECKPOINT, _whole(recipes.planner_sft))
critic_sft_checkpoint_checks = blocking_checks(CRITIC_SFT_CHECKPOINT, _whole(recipes.critic_sft))
critic_rl_checkpoint_checks = blocking_checks(CRITIC_RL_CHECKPOINT, _whole(recipes.critic_rl))


@dg.asset_check(
    asset=CRITIC_RL_CHECKPOINT.name,
    name="policy_not_collapsed",
    description="The last rollouts tell good pictures from bad ones and rewrite prompts",
)
def policy_not_collapsed(foundry: FoundryResource) -> dg.AssetCheckResult:
    """Not blocking: evaluation shows how bad it is, and promotion decides by that."""
    version = recipes.critic_rl(foundry).version
    last = last_steps(foundry.rows(ROLLOUTS, version), LAST_STEPS)
    columns = ["row_id", "origin_prompt", "rewritten_prompt"]
    judged = foundry.home.lake.read(CRITIC_RL, columns=columns).to_pylist()
    found = collapsed(last, judged_prompts(judged))
    return dg.AssetCheckResult(
        passed=found is None,
        description=f"the policy {found}" if found else None,
        metadata={"collapse": found or "none", "rollouts": len(last)},
    )


def last_steps(rows: Sequence[RolloutRow], steps: int) -> list[RolloutRow]:
    """Rollouts of the last training steps."""
    newest = max((row.step for row in rows), default=0)
    return [row for row in rows if row.step > newest - steps]
