"""Trainings that start from a model that was not trained here, with prompts of one's own."""

from pathlib import Path

import pytest

from assets.checkpoints import training
from assets.core.foundry import FoundryResource
from assets.curation.exports.publisher import export_all
from inference.agent_prompts.templates import critic_prompt, version_of
from inference.backends.checkpoint.backend import CheckpointBackend
from inference.backends.checkpoint.manifest import read_manifest
from inference.roles import qualified_name
from tests.dagster_project.conftest import copy_lake, tiny_foundry
from tests.helpers.fake_launcher import FakeLauncher
from tests.helpers.ticks import materialize
from training.base_model import PACKAGED_MODEL
from training.registry import CheckpointRegistry

PROMPT = "<image><image>Was {{ original_instruction }} done by {{ rewritten_prompt }}?"


@pytest.fixture
def released(tmp_path):
    """A critic of somebody else: weights without a manifest."""
    folder = tmp_path / "Critic-SFT-8B"
    folder.mkdir()
    for file in PACKAGED_MODEL.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "their-critic.jinja"
    path.write_text(PROMPT)
    return path


@pytest.fixture
def foundry(tmp_path, sample, released, prompt) -> FoundryResource:
    training = {"critic_rl": {"start": {"model": str(released)}}}
    curation = {"critic": {"agent_prompt": str(prompt)}}
    foundry = tiny_foundry(tmp_path, training=training, curation=curation)
    copy_lake(sample, Path(foundry.root))
    export_all(foundry.home, foundry.settings.curation)
    return foundry


@pytest.fixture
def job(foundry, instance, monkeypatch):
    """The job of GRPO, of which a fake launcher makes a checkpoint."""
    launcher = FakeLauncher()
    monkeypatch.setattr(training, "run_job", launcher.run_job)
    assert materialize(foundry, instance, ["critic_rl_checkpoint"]).success
    [job] = launcher.jobs
    return job


def test_grpo_starts_from_it_without_an_sft_of_ours(foundry, job, released):
    registry = CheckpointRegistry(foundry.home)
    [start] = registry.rows("critic_rl_start")
    [trained] = registry.rows("critic_rl_checkpoint")
    assert trained.parent == f"critic_rl_start/{start.version}"
    assert not registry.rows("critic_sft_checkpoint")
    parent = registry.folder(start.name, start.version)
    assert job.payload["parent"] == str(parent)
    weights = parent / "model.safetensors"
    assert weights.resolve() == (released / weights.name).resolve()


def test_a_checkpoint_has_the_prompts_of_its_training(foundry, job, prompt):
    version = version_of(str(prompt))
    prompt.write_text("Something else.")
    [row] = CheckpointRegistry(foundry.home).rows("critic_rl_checkpoint")
    folder = foundry.home.local / row.uri
    names = read_manifest(folder).agent_prompts
    assert version == version_of(names["critic"]) and version.startswith("their-critic@")
    assert (folder / "their-critic.jinja").read_text() == PROMPT
    assert names["planner_text"] == version_of("planner-text")
    settings = CheckpointBackend(device="cpu", critic=row.name + "@" + row.version)
    critic = settings.local_agents(["critic"], foundry.home)["critic"]
    assert qualified_name(critic) == f"checkpoint/{row.name}@{row.version}"
    asked = critic_prompt("a house", "a big house", names["critic"])
    assert asked.text == "<image><image>Was a house done by a big house?"
