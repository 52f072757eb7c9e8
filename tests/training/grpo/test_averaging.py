"""Weights of a trained model averaged with its parent's."""

import shutil

import pytest
import torch
from safetensors.torch import load_file

from inference.backends.checkpoint.model import load_weights
from tests.helpers.tiny_model import build_untrained
from training.grpo.verl_files import average_with_parent

WEIGHTS = "model.safetensors"


@pytest.fixture
def folders(tmp_path):
    """A model whose weights are its parent's plus one, in bfloat16, and the parent."""
    parent, model = tmp_path / "parent", tmp_path / "model"
    build_untrained(parent, hidden=96, layers=2)
    shutil.copytree(parent, model)
    for folder, added in ((parent, 0), (model, 1)):
        weights = load_weights(folder, dtype=torch.bfloat16)
        with torch.no_grad():
            for each in weights.parameters():
                each.add_(added)
        weights.save_pretrained(folder)
    return model, parent


def test_weights_lie_between_both_and_the_other_files_stay(folders):
    model, parent = folders
    before = {path.name: path.read_bytes() for path in model.iterdir() if path.name != WEIGHTS}
    trained, start = load_file(model / WEIGHTS), load_file(parent / WEIGHTS)
    average_with_parent(model, parent, 0.25)
    averaged = load_file(model / WEIGHTS)
    assert averaged.keys() == trained.keys()
    for name, each in averaged.items():
        expected = 0.75 * trained[name].float() + 0.25 * start[name].float()
        assert each.dtype == torch.bfloat16 and torch.equal(each, expected.bfloat16()), name
    after = {path.name: path.read_bytes() for path in model.iterdir() if path.name != WEIGHTS}
    assert after == before and {*model.parent.iterdir()} == {parent, model}
    load_weights(model)
