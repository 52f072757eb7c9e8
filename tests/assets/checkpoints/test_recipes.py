"""A checkpoint's version follows from everything that its training follows from."""

from pathlib import Path

import pytest

from assets.checkpoints.recipes import DataSet, Recipe, sft
from training.base_model.settings import BaseModelSettings
from training.sft.recipe import SftSettings

BASE = Recipe("base_model", "base", BaseModelSettings(), inputs={"weights": "abc"})
CUSTOM_RECIPE = (
    "gpus: 0\nthreads: 1\nbatch: 2\nbatch_per_device: 1\noptions: {stage: sft, warmup_steps: %s}\n"
)


def version(parent=BASE, rows="one", **settings):
    data = DataSet(Path("export"), {"critic_sft": rows}, 1)
    return sft("critic", "critic", parent, data, SftSettings(**settings)).version


def test_equal_origins_have_equal_versions():
    assert version() == version()


def test_versions_are_those_of_earlier_releases():
    """Another hash would train every checkpoint of an existing home again."""
    data = DataSet(Path("export"), {"critic_sft": "one"}, 1)
    recipe = Recipe("c", "critic", BaseModelSettings(), inputs={"a": 1}, parent=BASE, data=data)
    assert (BASE.version, recipe.version) == ("94633829f858", "bdee89a5d32d")


@pytest.mark.parametrize(
    "other",
    [
        {"rows": "two"},
        {"epochs": 7},
        {"recipe": "paper"},
        {"parent": Recipe("base_model", "base", BaseModelSettings(), inputs={"weights": "abd"})},
    ],
    ids=["rows", "settings", "recipe", "parent"],
)
def test_a_different_origin_has_a_different_version(other):
    assert version(**other) != version()


def test_the_content_of_a_custom_recipe_counts(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(CUSTOM_RECIPE % 1)
    first = version(recipe=path)
    path.write_text(CUSTOM_RECIPE % 2)
    assert version(recipe=path) != first
