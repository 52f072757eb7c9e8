"""Masked rollouts do not count in their group."""

import json
import math
import os
import subprocess
from runpy import run_path

import pytest
import torch

from inference.environments import ensure_environment
from training.grpo.recipe import PLUGINS, CriticGrpoSettings, environment

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


def test_a_masked_rollout_changes_nothing_for_the_others():
    without = advantages([1.0, 0.0, 0.5], ["a"] * 3)
    with_masked = advantages([1.0, math.nan, 0.0, 0.5], ["a"] * 4)
    assert with_masked[1] == 0.0
    assert [with_masked[0], *with_masked[2:]] == without


def test_rollouts_are_compared_within_their_group_which_may_be_interleaved():
    result = advantages([1.0, 5.0, 0.0, math.nan, 7.0], ["a", "b", "a", "b", "b"])
    half = math.sqrt(0.5)
    assert result == pytest.approx([half, -half, -half, 0.0, half], abs=1e-4)


def test_a_group_without_a_difference_has_no_advantages():
    for rewards in [[math.nan] * 3, [0.7, math.nan, math.nan], [0.3, 0.3, 0.3]]:
        assert advantages(rewards, ["a"] * 3) == [0.0, 0.0, 0.0]


# What verl's own agent loop worker does with a rollout before it is stored for the trainer.
IN_VERL = """
import asyncio, json, math
from verl.experimental.agent_loop import AgentLoopOutput
from verl_masking.agent_loop import MaskingAgentLoopManager, MaskingAgentLoopWorker

kind = MaskingAgentLoopWorker.__ray_metadata__.modified_class
worker = kind.__new__(kind)
worker.reward_loop_worker_handles = None  # the score is there already
found = {}
for name, score in {"known": 0.5, "masked": math.nan}.items():
    output = AgentLoopOutput(
        prompt_ids=[1], response_ids=[2, 3], response_mask=[1, 1], reward_score=score, metrics={}
    )
    asyncio.run(worker._compute_score([output], kwargs={}))
    fields = output.as_dict()
    found[name] = fields["response_mask"].tolist(), fields["rm_scores"].isnan().tolist()
print(json.dumps(found))
"""


@pytest.mark.long
def test_no_token_of_a_masked_rollout_counts_in_a_loss():
    """verl's losses, its divergence and their denominators count the tokens of this mask."""
    python, settings = ensure_environment("rl", "cpu"), CriticGrpoSettings()
    variables = os.environ | environment(settings)
    done = subprocess.run(
        [str(python), "-c", IN_VERL], env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"known": [[1, 1], [False, False]], "masked": [[0, 0], [False, True]]}
