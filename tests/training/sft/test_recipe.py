"""What LLaMA-Factory is options to do."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from schemas import FoundryError
from training.sft import nodes
from training.sft.driver import sft_job
from training.sft.nodes import rendezvous
from training.sft.recipe import SftJob, SftSettings, environment, llamafactory_config, read_recipe

RECIPES = ("sketch", "paper", "reference", "lora")
DATA, FOLDER = Path("/data/export"), Path("/somewhere/job")


def config(**settings):
    return llamafactory_config(job_of(SftSettings(**settings)), FOLDER)


def job_of(settings):
    return SftJob(parent="base", data=DATA, datasets=["critic_sft"], settings=settings)


def test_paths_and_names_are_set():
    for recipe in RECIPES:
        options = config(recipe=recipe)
        assert options["model_name_or_path"] == "base"
        assert (options["dataset"], options["dataset_dir"]) == ("critic_sft", "/data/export")
        assert options["media_dir"] == "/data/export"
        assert options["output_dir"] == "/somewhere/job/checkpoints"
    assert Path(config(recipe="paper")["deepspeed"]).is_file()


def test_options_that_collide_with_ours_are_rejected():
    cases = [
        ("gradient_accumulation_steps", "follows from `batch`"),
        ("output_dir", "the driver sets this"),
    ]
    for option, reason in cases:
        with pytest.raises(ValidationError, match=reason):
            SftSettings(options={option: 1})


def test_bfloat16_is_used_on_processors_that_have_it_unless_set():
    supported = "amx_bf16" in Path("/proc/cpuinfo").read_text().split()
    assert config(recipe="sketch")["bf16"] is supported
    assert config(recipe="sketch", options={"bf16": False})["bf16"] is False
    assert config(recipe="paper")["bf16"] is True


def test_settings_come_before_the_recipe_and_options_before_both():
    options = config(epochs=3.0, seed=5, options={"num_train_epochs": 7, "warmup_steps": 9})
    assert (options["num_train_epochs"], options["seed"], options["warmup_steps"]) == (7, 5, 9)


def test_the_batch_is_divided():
    cases = [
        ({"recipe": "paper"}, 2, 2),
        ({"recipe": "paper", "gpus": 4}, 2, 4),
        ({"recipe": "paper", "batch": 8}, 1, 1),
        ({"recipe": "reference"}, 2, 1),
        ({"recipe": "paper", "nodes": 2}, 2, 1),
        ({"recipe": "sketch", "batch": 4}, 4, 1),
        ({"recipe": "sketch", "batch": 32, "batch_per_device": 8}, 8, 4),
    ]
    for settings, device, accumulated in cases:
        options = config(**settings)
        assert options["per_device_train_batch_size"] == device
        assert options["gradient_accumulation_steps"] == accumulated
        assert bool(options.get("data_shared_file_system")) == ("nodes" in settings)
    with pytest.raises(ValidationError, match="batch of 32 is no multiple of 48"):
        SftSettings(recipe="paper", nodes=3)


def test_a_custom_recipe_and_a_batch_that_cannot_be_divided(tmp_path):
    path = tmp_path / "mine.yaml"
    recipe = "gpus: {}\nthreads: 1\nbatch: {}\nbatch_per_device: 1\noptions: {{stage: sft}}\n"
    path.write_text(recipe.format(0, 2))
    assert config(recipe=path)["gradient_accumulation_steps"] == 2
    path.write_text(recipe.format(2, 3))
    with pytest.raises(FoundryError, match="batch of 3 is no multiple of 2"):
        config(recipe=path)
    path.write_text("gpu: 0\n")
    with pytest.raises(FoundryError, match=r"mine.yaml:1: gpu: Extra inputs"):
        config(recipe=path)
    with pytest.raises(ValidationError, match="batch of 30 is no multiple of 16"):
        SftSettings(recipe="paper", batch=30)


def test_gpus_are_reserved_and_passed_to_torchrun():
    settings = SftSettings(recipe="paper")
    job = sft_job("critic", FOLDER, job_of(settings))
    variables = environment(read_recipe(settings), Path("/e/bin/python"), FOLDER)
    assert job.gpus == 8
    assert (variables["FORCE_TORCHRUN"], variables["NPROC_PER_NODE"]) == ("1", "8")
    assert variables["PATH"].startswith("/e/bin:")
    variables = environment(read_recipe(SftSettings()), Path("/e/bin/python"), FOLDER)
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["OMP_NUM_THREADS"]) == ("", "2")


def test_nodes_meet_where_the_scheduler_says_or_at_the_first_one(tmp_path, monkeypatch):
    recipe = read_recipe(SftSettings(recipe="paper"))
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29501")
    with rendezvous(tmp_path) as meeting:
        variables = meeting.variables(2, 1, recipe)
        assert (tmp_path / "nodes.json").is_file()
    assert not (tmp_path / "nodes.json").exists()
    assert variables == {
        "FORCE_TORCHRUN": "1",
        "NNODES": "2",
        "NODE_RANK": "1",
        "NPROC_PER_NODE": "8",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29501",
    }
    monkeypatch.delenv("MASTER_ADDR")
    monkeypatch.delenv("MASTER_PORT")
    monkeypatch.setattr(nodes, "reachable_host", lambda: "10.0.0.7")
    with rendezvous(tmp_path) as meeting:
        assert meeting.address == "10.0.0.7" and meeting.port > 0
