"""Tiny checkpoints: random weights, the packaged ones, one overfitted to fixed answers."""

import shutil

import pytest

from inference.backends.checkpoint.manifest import MANIFEST_FILE
from tests.helpers.tiny_model import build_untrained
from tests.inference.backends.checkpoint.tiny_agents import BOTH, fixed_answers, overfit
from training.base_model import PACKAGED_MODEL


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """A checkpoint with random weights."""
    folder = tmp_path_factory.mktemp("checkpoints") / "untrained"
    build_untrained(folder, hidden=96, layers=2, vision_hidden=64)
    (folder / MANIFEST_FILE).write_text(BOTH.model_dump_json())
    return folder


@pytest.fixture(scope="session")
def packaged_folder(tmp_path_factory):
    """The packaged base model as an agent: sensitive to word order, unlike random weights."""
    folder = tmp_path_factory.mktemp("checkpoints") / "packaged"
    shutil.copytree(PACKAGED_MODEL, folder)
    (folder / MANIFEST_FILE).write_text(BOTH.model_dump_json())
    return folder


@pytest.fixture(scope="session")
def overfitted(untrained, tmp_path_factory):
    """A checkpoint that accepts every image and has one plan for every request."""
    folder = tmp_path_factory.mktemp("checkpoints") / "overfitted"
    shutil.copytree(untrained, folder)
    overfit(folder, fixed_answers())
    return folder
