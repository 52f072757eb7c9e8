"""A checkpoint's version follows from everything that its training follows from."""

from pathlib import Path

import pytest

from assets.checkpoints.recipes import DataSet, Recipe, sft
from training.base_model.settings import BaseModelSettings
from training.sft.settings import SftSettings

BASE = Recipe("base_model", "base", BaseModelSettings(), facts={"weights": "abc"})
OWN = (
    "gpus: 0\nthreads: 1\nbatch: 2\nbatch_per_device: 1\noptions: {stage: sft, warmup_steps: %s}\n"
)


def version(parent=BASE, rows="one", **settings):
    data = DataSet(Path("export"), {"critic_sft": rows}, 1)
    return sft("critic", "critic", parent, data, SftSettings(**settings)).version


def test_equal_origins_have_equal_versions():
    assert version() == version()


@pytest.mark.parametrize(
    "other",
    [
        {"rows": "two"},
        {"epochs": 7},
        {"recipe": "paper"},
        {"parent": Recipe("base_model", "base", BaseModelSettings(), facts={"weights": "abd"})},
    ],
    ids=["rows", "settings", "recipe", "parent"],
)
def test_whatever_differs_is_another_version(other):
    assert version(**other) != version()


def test_so_does_what_a_recipe_of_ones_own_says(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(OWN % 1)
    first = version(recipe=path)
    path.write_text(OWN % 2)
    assert version(recipe=path) != first
