"""Masked rollouts leave their group: GRPO over the rollouts whose reward is known.

The reward function marks a rollout whose draw failed with `masked`. verl carries one number from
the reward to the advantage, so the manager registered here makes that number NaN, and the
estimator leaves NaN out: it counts neither in the mean and deviation of its group nor in the
gradient. Register both with VERL_USE_EXTERNAL_MODULES=verl_masking. It runs in the trainer's
interpreter only.
"""

import math
from typing import Any

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.experimental.reward_loop.reward_manager.registry import register as register_manager
from verl.trainer.ppo.core_algos import register_adv_est

from .advantage import masked_grpo

MANAGER = "masking"
ESTIMATOR = "masked_grpo"


@register_manager(MANAGER)
class MaskingRewardManager(NaiveRewardManager):
    """verl's own manager; the reward of a masked rollout is NaN."""

    async def run_single(self, data: Any) -> dict[str, Any]:
        result = await super().run_single(data)
        if result["reward_extra_info"].get("masked"):
            result["reward_score"] = math.nan
        return result


register_adv_est(ESTIMATOR)(masked_grpo)
