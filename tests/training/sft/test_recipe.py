"""What LLaMA-Factory is told to do."""

from pathlib import Path

import pytest

from schemas import FoundryError
from training.sft import SftSettings, sft_job
from training.sft.recipe import environment, read_recipe, rendered

RECIPES = ("sketch", "paper", "lora")
DATA, FOLDER = Path("/data/export"), Path("/somewhere/job")


def config(**settings):
    return rendered(SftSettings(**settings), "base", DATA, ["critic_sft"], FOLDER)


@pytest.mark.parametrize("recipe", RECIPES)
def test_it_says_where_everything_is(recipe):
    told = config(recipe=recipe)
    assert told["model_name_or_path"] == "base"
    assert (told["dataset"], told["dataset_dir"]) == ("critic_sft", "/data/export")
    assert told["media_dir"] == "/data/export"
    assert told["output_dir"] == "/somewhere/job/checkpoints"


def test_the_paper_is_followed():
    """Section 4.1: 2 epochs, learning rate 2e-5, global batch 32, pictures of 1024 x 1024."""
    told = config(recipe="paper")
    assert (told["num_train_epochs"], told["learning_rate"]) == (2, 2e-5)
    assert told["per_device_train_batch_size"] * told["gradient_accumulation_steps"] * 8 == 32
    assert told["image_max_pixels"] == 1024 * 1024
    assert told["freeze_vision_tower"] and told["freeze_multi_modal_projector"]
    assert Path(told["deepspeed"]).is_file()


def test_everything_of_a_random_model_is_trained():
    told = config(recipe="sketch")
    assert not any(told[f"freeze_{part}"] for part in ("vision_tower", "language_model"))
    assert not told["freeze_multi_modal_projector"]
    assert told["disable_gradient_checkpointing"]


def test_bfloat16_is_for_processors_that_have_it_unless_somebody_says_otherwise():
    has_it = {"avx512_bf16", "amx_bf16"} & set(Path("/proc/cpuinfo").read_text().split())
    assert config(recipe="sketch")["bf16"] is bool(has_it)
    assert config(recipe="sketch", options={"bf16": False})["bf16"] is False
    assert config(recipe="paper")["bf16"] is True


def test_settings_come_before_the_recipe_and_options_before_both():
    told = config(epochs=3.0, seed=5, options={"num_train_epochs": 7, "warmup_steps": 9})
    assert (told["num_train_epochs"], told["seed"], told["warmup_steps"]) == (7, 5, 9)


@pytest.mark.parametrize(
    ("settings", "device", "accumulated"),
    [
        ({"recipe": "paper"}, 2, 2),
        ({"recipe": "paper", "gpus": 4}, 2, 4),
        ({"recipe": "paper", "batch": 8}, 1, 1),
        ({"recipe": "sketch", "batch": 4}, 4, 1),
        ({"recipe": "sketch", "batch": 32, "batch_per_device": 8}, 8, 4),
    ],
)
def test_the_batch_is_shared_out(settings, device, accumulated):
    told = config(**settings)
    assert told["per_device_train_batch_size"] == device
    assert told["gradient_accumulation_steps"] == accumulated


def test_a_batch_that_cannot_be_shared_out_is_an_error():
    with pytest.raises(FoundryError, match="batch of 30 is no multiple of 16"):
        config(recipe="paper", batch=30)


def test_a_recipe_of_ones_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("gpus: 0\nthreads: 1\nbatch: 2\nbatch_per_device: 1\noptions: {stage: sft}\n")
    assert config(recipe=path)["gradient_accumulation_steps"] == 2
    path.write_text("gpu: 0\n")
    with pytest.raises(FoundryError, match=r"mine.yaml:1: gpu: Extra inputs"):
        config(recipe=path)


def test_gpus_are_reserved_and_used():
    job = sft_job("critic", FOLDER, "base", DATA, ["critic_sft"], SftSettings(recipe="paper"))
    variables = environment(read_recipe(SftSettings(recipe="paper")), Path("/e/bin/python"), FOLDER)
    assert job.gpus == 8
    assert (variables["FORCE_TORCHRUN"], variables["NPROC_PER_NODE"]) == ("1", "8")
    assert variables["PATH"].startswith("/e/bin:")


def test_a_cpu_recipe_sees_no_gpu():
    variables = environment(read_recipe(SftSettings()), Path("/e/bin/python"), FOLDER)
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["OMP_NUM_THREADS"]) == ("", "2")
