"""GRPO over the rollouts of a group whose reward is known; masked ones do not count.

The reward function marks a rollout without an image with `masked`. verl passes one number from the
reward to the advantage: the manager registered here sets it to NaN, and the estimator, which takes
the place of verl's GRPO, excludes NaN from the mean and deviation of its group. verl's is replaced
since it gives it one sequence an episode, the last one, and all of them its advantage. Both are
there by VERL_USE_EXTERNAL_MODULES=verl_masking, in the trainer's interpreter only. `agent_loop`
takes the tokens of such a rollout out of every loss.
"""

import math
from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.experimental.reward_loop.reward_manager.registry import register as register_manager
from verl.trainer.ppo import core_algos

from .advantage import masked_grpo

MANAGER = "masking"


@register_manager(MANAGER)
class MaskingRewardManager(NaiveRewardManager):
    """verl's own manager; the reward of a masked rollout is NaN."""

    async def run_single(self, data: Any) -> dict[str, Any]:
        result = await super().run_single(data)
        if result["reward_extra_info"].get("masked"):
            result["reward_score"] = math.nan
        return result


core_algos.compute_grpo_outcome_advantage = masked_grpo
