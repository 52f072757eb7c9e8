"""Tiny edit-reward models: random weights, an adapter, marks by heart."""

import shutil

import pytest

from tests.helpers.tiny_editscore import teach, tiny_adapter, tiny_model, words


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model with random weights."""
    return tiny_model(tmp_path_factory.mktemp("editscore") / "model")


@pytest.fixture(scope="session")
def adapter(model, tmp_path_factory):
    return tiny_adapter(tmp_path_factory.mktemp("editscore") / "adapter", model)


@pytest.fixture(scope="session")
def prompts(tmp_path_factory):
    return words(tmp_path_factory.mktemp("editscore") / "words")


@pytest.fixture(scope="session")
def taught(model, prompts, tmp_path_factory):
    """A model that gives every attempt the same marks."""
    folder = tmp_path_factory.mktemp("editscore") / "taught"
    shutil.copytree(model, folder)
    teach(folder, prompts)
    return folder
