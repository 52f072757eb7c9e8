"""Checks of checkpoints: their files are complete, and the policy still judges."""

import dagster as dg

from schemas.curation import CRITIC_RL
from schemas.training import ROLLOUTS
from training.registry import CheckpointRegistry
from training.rewards.rollouts import LAST_STEPS, find_collapse, judged_prompts

from ..core.checks import blocking_checks
from ..core.foundry import FoundryResource
from ..core.integrity import Violations
from ..core.node import NODES
from .assets import base_model, critic_rl_checkpoint, critic_sft_checkpoint, planner_sft_checkpoint
from .recipes import LINEAGE, critic_rl, newest_version


def _checkpoint_checks(asset: dg.AssetsDefinition) -> dg.AssetChecksDefinition:
    name = asset.key.to_user_string()

    def rule(foundry: FoundryResource, _partition: str | None) -> Violations:
        version = newest_version(foundry.home, LINEAGE[name](foundry))
        if CheckpointRegistry(foundry.home).is_complete(name, version):
            return []
        return [{"checkpoint": name, "version": version, "problem": "incomplete"}]

    description = "The checkpoint's row and all its files exist"
    return blocking_checks(NODES[name], folder_whole=(description, rule))


base_model_checks = _checkpoint_checks(base_model)
planner_sft_checkpoint_checks = _checkpoint_checks(planner_sft_checkpoint)
critic_sft_checkpoint_checks = _checkpoint_checks(critic_sft_checkpoint)
critic_rl_checkpoint_checks = _checkpoint_checks(critic_rl_checkpoint)


@dg.asset_check(
    asset=critic_rl_checkpoint,
    name="policy_not_collapsed",
    description="The last rollouts distinguish good images from bad ones and rewrite prompts",
)
def policy_not_collapsed(foundry: FoundryResource) -> dg.AssetCheckResult:
    """Not blocking: evaluation measures the effect, and promotion decides by that."""
    recipe = critic_rl(foundry)
    rows = foundry.rows(ROLLOUTS, newest_version(foundry.home, recipe))
    newest = max((row.step for row in rows), default=0)
    last = [row for row in rows if row.step > newest - LAST_STEPS]
    columns = ["row_id", "origin_prompt", "rewritten_prompt"]
    trained_on = recipe.data.home if recipe.data else foundry.home
    judged = trained_on.lake.read(CRITIC_RL, columns=columns).to_pylist()
    collapse = find_collapse(last, judged_prompts(judged))
    return dg.AssetCheckResult(
        passed=collapse is None,
        description=f"the policy {collapse}" if collapse else None,
        metadata={"collapse": collapse or "none", "rollouts": len(last)},
    )
