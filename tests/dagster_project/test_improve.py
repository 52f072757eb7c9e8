"""Rounds of `interleave improve`: one after the other, killed, stopped, and on a schedule."""

import textwrap

import pytest

from assets.checkpoints import training
from assets.core.foundry import FoundryResource
from dagster_project.improve import improve
from dagster_project.run import run_lineage
from schemas.rounds import FAILURES
from tests.dagster_project.test_training_lineage import PROFILE
from tests.helpers.fake_launcher import FakeLauncher
from training.registry import CheckpointRegistry

pytestmark = pytest.mark.slow
PLANNER, CRITIC = "planner_sft_checkpoint", "critic_rl_checkpoint"
ROUNDS_SECTION = """
    prompts: {quotas_by_failure: {}}
    rounds: {shards: 1, quarantine_share: 1, training: {planner_sft: {max_steps: 1}}}
"""


@pytest.fixture
def foundry(tmp_path):
    path = tmp_path / "rounds.yaml"
    text = textwrap.dedent(PROFILE) + textwrap.dedent(ROUNDS_SECTION)
    path.write_text(text.replace("side_by_side: true", "side_by_side: false"))
    return FoundryResource(profile=str(path), root=str(tmp_path / "lake"))


@pytest.fixture
def launcher(monkeypatch):
    launcher = FakeLauncher()
    monkeypatch.setattr(training, "run_job", launcher.run_job)
    return launcher


@pytest.fixture
def promoted(foundry, instance, launcher):
    """A lineage whose agents, copies of the base model, are promoted."""
    run_lineage(foundry, instance, shards=1)
    assert CheckpointRegistry(foundry.home).promoted(PLANNER)
    return foundry


def test_it(promoted, instance, launcher):
    rows = improve(promoted, instance, 1, print)
    print(rows)
    for f in promoted.rows(FAILURES):
        print(f)
    assert 0
