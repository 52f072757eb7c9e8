"""Sizes of models follow from their configurations, and memory from the sizes."""

import json

import pytest
import torch

from inference.backends.model_files import device_and_dtype
from training.base_model import PACKAGED_MODEL
from training.model_size import KNOWN_SIZES, ModelSize, picture_seconds

EIGHT = KNOWN_SIZES["Qwen/Qwen3-VL-8B-Instruct"]
GIB, GB = 2**30, 1e9


def config_of_8b() -> dict:
    text = {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36}
    text |= {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    text |= {"vocab_size": 151936}
    vision = {"hidden_size": 1152, "intermediate_size": 4304, "depth": 27, "num_heads": 16}
    vision |= {"in_channels": 3, "patch_size": 16, "temporal_patch_size": 2}
    vision |= {"spatial_merge_size": 2, "out_hidden_size": 4096, "num_position_embeddings": 2304}
    vision |= {"deepstack_visual_indexes": [8, 16, 24]}
    return {"text_config": text, "vision_config": vision, "tie_word_embeddings": False}


def packaged_config() -> dict:
    return json.loads((PACKAGED_MODEL / "config.json").read_text())


@pytest.mark.parametrize("config", [packaged_config(), config_of_8b()], ids=["packaged", "8B"])
def test_parameters_are_those_of_transformers(config):
    device_and_dtype("cpu")  # torchvision
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    with torch.device("meta"):
        model = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**config))
    assert ModelSize.of(config).parameters == sum(each.numel() for each in model.parameters())


def test_the_size_that_is_known_before_the_download_is_that_of_its_configuration():
    assert ModelSize.of(config_of_8b()) == EIGHT


def test_a_cache_for_every_position_of_8b_takes_36_gib():
    """Why vLLM needs `max_model_len`: 262,144 positions do not fit beside the weights."""
    assert EIGHT.cache_bytes * 262_144 == 36 * GIB
    with_all = EIGHT.served_gpu_bytes(1, 262_144)
    assert with_all - EIGHT.served_gpu_bytes(1, 20_480) == (262_144 - 20_480) * EIGHT.cache_bytes
    assert EIGHT.served_gpu_bytes(4, 262_144) == with_all / 4


def test_zero_divides_what_adapters_repeat():
    assert EIGHT.sft_gpu_bytes(8, 0, tokens=0) == 16 * EIGHT.parameters / 8
    full, adapters = EIGHT.sft_gpu_bytes(1, 0, 0), EIGHT.sft_gpu_bytes(1, 32, 0)
    assert full == pytest.approx(140.3 * GB, rel=0.01)
    assert adapters == pytest.approx(18.9 * GB, rel=0.01)
    longer = EIGHT.sft_gpu_bytes(1, 32, 1000) - adapters
    assert longer == 1000 * EIGHT.activation_bytes > 12 * 1000 * EIGHT.vocabulary


def test_reinforced_adapters_keep_the_base_in_single_precision():
    assert EIGHT.grpo_state_bytes(0, gpus=8) == 2 * EIGHT.parameters
    assert 4 * EIGHT.parameters < EIGHT.grpo_state_bytes(64) < 5 * EIGHT.parameters


def test_time_follows_from_operations():
    tokens = 80_000 * 2 * 3300  # the paper's set for the planner, two epochs
    hours = EIGHT.training_seconds(tokens, 8, rank=0) / 3600
    assert 3 < hours < 5, "of some 50 hours for everything, which the paper names"
    assert EIGHT.training_seconds(tokens, 8, 32) == pytest.approx(0.75 * 3600 * hours)
    assert picture_seconds(9.1e9, 4608, 4) == pytest.approx(1.0, rel=0.1)
