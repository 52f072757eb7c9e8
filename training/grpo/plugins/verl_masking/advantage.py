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

    A group with fewer than two known rewards has zero advantages.

    Args:
        token_level_rewards: (rollouts, tokens); the sum of a row is its reward, NaN: unknown.
        response_mask: (rollouts, tokens), 1 for tokens of the response.
        index: the group of every rollout.
    """
    rewards = token_level_rewards.sum(dim=-1)
    advantages = torch.zeros_like(rewards)
    for group in dict.fromkeys(index):
        members = [i for i, other in enumerate(index) if other == group]
        known = [i for i in members if not rewards[i].isnan()]
        if len(known) > 1:
            deviation = rewards[known].std() + _EPSILON
            advantages[known] = (rewards[known] - rewards[known].mean()) / deviation
    by_token = advantages[:, None] * response_mask
    return by_token, by_token
