"""Tiny edit-reward models: random weights, an adapter, overfitted weights."""

import shutil

import pytest

from tests.helpers.tiny_editscore import overfit, short_prompts, tiny_adapter, tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A model with random weights."""
    return tiny_model(tmp_path_factory.mktemp("editscore") / "model")


@pytest.fixture(scope="session")
def adapter(model, tmp_path_factory):
    return tiny_adapter(tmp_path_factory.mktemp("editscore") / "adapter", model)


@pytest.fixture(scope="session")
def prompts(tmp_path_factory):
    return short_prompts(tmp_path_factory.mktemp("editscore") / "prompts")


@pytest.fixture(scope="session")
def overfitted(model, prompts, tmp_path_factory):
    """A model that gives every attempt the same ratings."""
    folder = tmp_path_factory.mktemp("editscore") / "overfitted"
    shutil.copytree(model, folder)
    overfit(folder, prompts)
    return folder
