"""GRPO's advantages over the rollouts of a group whose reward is known."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_EPSILON = 1e-6  # as in verl and in the reference


def masked_grpo(
    token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any], **_config: Any
) -> tuple[Tensor, Tensor]:
    """Advantages and returns, both (rollouts, tokens): reward minus mean, over deviation, by group.

    A group with fewer than two known rewards has nothing to compare and gives no gradient.

    Args:
        token_level_rewards: (rollouts, tokens); the sum of a row is its reward, NaN: unknown.
        response_mask: (rollouts, tokens), 1 for tokens of the response.
        index: The group of every rollout.
    """
    rewards = token_level_rewards.sum(dim=-1)
    advantages = torch.zeros_like(rewards)
    for group in dict.fromkeys(index):
        members = [i for i, other in enumerate(index) if other == group]
        known = [i for i in members if not rewards[i].isnan()]
        if len(known) > 1:
            spread = rewards[known].std() + _EPSILON
            advantages[known] = (rewards[known] - rewards[known].mean()) / spread
    spread_out = advantages[:, None] * response_mask
    return spread_out, spread_out
