"""Tiny checkpoints: random weights, the shipped ones, an answer for each role by heart."""

import shutil

import pytest

from inference.backends.checkpoint.manifest import MANIFEST_FILE
from tests.inference.backends.checkpoint.tiny_agents import BOTH, always_the_same, learn_by_heart
from training.base_model.architecture import build_untrained
from training.base_model.driver import packaged_model
from training.base_model.settings import Architecture, BaseModelSettings

SMALL = BaseModelSettings(architecture=Architecture(hidden=96, layers=2, vision_hidden=64))


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """A checkpoint with random weights."""
    folder = tmp_path_factory.mktemp("checkpoints") / "untrained"
    build_untrained(folder, SMALL)
    (folder / MANIFEST_FILE).write_text(BOTH.model_dump_json())
    return folder


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    """The base model as an agent: unlike random weights it minds where a word stands."""
    folder = tmp_path_factory.mktemp("checkpoints") / "shipped"
    shutil.copytree(packaged_model(), folder)
    (folder / MANIFEST_FILE).write_text(BOTH.model_dump_json())
    return folder


@pytest.fixture(scope="session")
def taught(untrained, tmp_path_factory):
    """A checkpoint that accepts every picture and has one plan for every request."""
    folder = tmp_path_factory.mktemp("checkpoints") / "taught"
    shutil.copytree(untrained, folder)
    learn_by_heart(folder, always_the_same())
    return folder
