"""Sizes of models follow from their configurations, and memory from the sizes."""

import json

import pytest
import torch

from bench.gpu import _agent_config
from inference.backends.model_files import device_and_dtype
from training.base_model import PACKAGED_MODEL
from training.model_size import KNOWN_SIZES, ModelSize, picture_seconds

EIGHT = KNOWN_SIZES["Qwen/Qwen3-VL-8B-Instruct"]
GIB, GB = 2**30, 1e9
CONFIGURATIONS = {
    "packaged": lambda: json.loads((PACKAGED_MODEL / "config.json").read_text()),
    "8B": lambda: _agent_config(is_tiny=False).to_dict(),  # which bench.gpu measures with
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_parameters_are_those_of_transformers_and_of_8b_known_before_the_download(name):
    device_and_dtype("cpu")  # torchvision
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = CONFIGURATIONS[name]()
    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**config))
    size = ModelSize.of(config)
    assert size.parameters == sum(each.numel() for each in model.parameters())
    assert (size == EIGHT) == (name == "8B")


def test_a_cache_for_every_position_of_8b_takes_36_gib():
    """Why vLLM needs `max_model_len`: 262,144 positions do not fit beside the weights."""
    assert EIGHT.cache_bytes * 262_144 == 36 * GIB
    with_all = EIGHT.served_gpu_bytes(1, 262_144)
    assert with_all - EIGHT.served_gpu_bytes(1, 20_480) == (262_144 - 20_480) * EIGHT.cache_bytes
    assert EIGHT.served_gpu_bytes(4, 262_144) == with_all / 4


def test_zero_divides_what_adapters_repeat():
    assert EIGHT.sft_gpu_bytes(8, 0, tokens=0) == 16 * EIGHT.parameters / 8
    assert EIGHT.grpo_state_bytes(0, gpus=8) == 2 * EIGHT.parameters
    full, adapters = EIGHT.sft_gpu_bytes(1, 0, 0), EIGHT.sft_gpu_bytes(1, 32, 0)
    assert full == pytest.approx(140.3 * GB, rel=0.01)
    assert adapters == pytest.approx(18.9 * GB, rel=0.01)
    longer = EIGHT.sft_gpu_bytes(1, 32, 1000) - adapters
    assert longer == 1000 * EIGHT.activation_bytes > 12 * 1000 * EIGHT.vocabulary


def test_time_follows_from_operations():
    tokens = 80_000 * 2 * 3300  # the paper's set for the planner, two epochs
    hours = EIGHT.training_seconds(tokens, 8, rank=0) / 3600
    assert 3 < hours < 5, "of some 50 hours for everything, which the paper names"
    assert EIGHT.training_seconds(tokens, 8, 32) == pytest.approx(0.75 * 3600 * hours)
    assert picture_seconds(9.1e9, 4608, 4) == pytest.approx(1.0, rel=0.1)
