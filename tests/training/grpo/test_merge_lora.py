"""Adapters as verl's merger writes them, merged in the trainer's environment."""

import os
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from inference.environments import ensure_environment
from tests.helpers.tiny_model import build_untrained
from training.grpo.recipe import PLUGINS

pytestmark = pytest.mark.long
ADAPT = """
import sys
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForImageTextToText

model = AutoModelForImageTextToText.from_pretrained(sys.argv[1])
config = LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj"], init_lora_weights=False)
get_peft_model(model, config).save_pretrained(sys.argv[1] + "/lora_adapter")
"""


def test_the_adapters_product_is_added_to_the_weights(tmp_path):
    parent, folder = tmp_path / "parent", tmp_path / "model"
    build_untrained(parent)
    shutil.copytree(parent, folder)
    run("-c", ADAPT, str(folder))
    adapter = load_file(folder / "lora_adapter" / "adapter_model.safetensors")
    run("-m", "merge_lora", str(folder))
    before, after = (load_file(path / "model.safetensors") for path in (parent, folder))
    assert before.keys() == after.keys() and not (folder / "lora_adapter").exists()
    for name, weights in before.items():
        key = f"base_model.model.{name.removesuffix('.weight')}"
        expected = weights.float()
        if f"{key}.lora_A.weight" in adapter:
            up, down = (adapter[f"{key}.lora_{part}.weight"] for part in "BA")
            expected = expected + 3 * up @ down
        assert torch.allclose(after[name].float(), expected, atol=1e-2), name
    assert any(not torch.equal(before[name], after[name]) for name in before)


def run(*command: str) -> None:
    python = ensure_environment("rl", "cpu")
    variables = os.environ | {"PYTHONPATH": str(PLUGINS)}
    done = subprocess.run([str(python), *command], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
