"""Masked rollouts do not count in their group."""

import math
from runpy import run_path

import pytest
import torch

from training.grpo.recipe import PLUGINS

# By its file: the package around it registers with verl, which is not in our environment.
masked_grpo = run_path(str(PLUGINS / "verl_masking" / "advantage.py"))["masked_grpo"]


def advantages(rewards: list[float], groups: list[str]) -> list[float]:
    """Of responses with three tokens, the last of them padding."""
    mask = torch.tensor([[1.0, 1.0, 0.0]]).expand(len(rewards), -1)
    scores = torch.zeros(len(rewards), 3)
    scores[:, 1] = torch.tensor(rewards)
    result, returns = masked_grpo(scores, mask, groups, config=None)
    assert torch.equal(result, returns)
    assert torch.equal(result[:, 0], result[:, 1]) and not result[:, 2].any()
    return result[:, 0].tolist()


def test_rollouts_are_compared_within_their_group():
    result = advantages([1.0, 0.0, 5.0, 7.0], ["a", "a", "b", "b"])
    half = math.sqrt(0.5)
    assert result == pytest.approx([half, -half, -half, half], abs=1e-4)


def test_a_masked_rollout_changes_nothing_for_the_others():
    without = advantages([1.0, 0.0, 0.5], ["a"] * 3)
    with_masked = advantages([1.0, math.nan, 0.0, 0.5], ["a"] * 4)
    assert with_masked[1] == 0.0
    assert [with_masked[0], *with_masked[2:]] == without


def test_groups_may_be_interleaved():
    result = advantages([1.0, 5.0, 0.0, math.nan], ["a", "b", "a", "b"])
    assert result == pytest.approx([math.sqrt(0.5), 0.0, -math.sqrt(0.5), 0.0], abs=1e-4)


@pytest.mark.parametrize("rewards", [[math.nan] * 3, [0.7, math.nan, math.nan], [0.3, 0.3, 0.3]])
def test_a_group_without_a_difference_has_no_advantages(rewards):
    assert advantages(rewards, ["a"] * 3) == [0.0, 0.0, 0.0]
