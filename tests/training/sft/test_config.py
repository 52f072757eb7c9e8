"""What LLaMA-Factory itself makes of our configurations, in its environment."""

import os
from pathlib import Path
from typing import get_args

import pytest

from inference.environments import ensure_environment
from tests.training.sft.sft_runs import write_export
from tests.training.trainer_parsers import parse_all
from training.sft.recipe import SftJob, SftSettings, llamafactory_config
from training.tracking import OFFLINE, Tracker, TrackingSettings

pytestmark = pytest.mark.slow
RECIPES = ("sketch", "paper", "reference", "lora")
TRACKERS = {
    kind: TrackingSettings(kind=kind, project="mine", url="http://t" if kind == "mlflow" else None)
    for kind in get_args(Tracker)
}
PARSER = Path(__file__).parent / "parse_config.py"


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sft")
    data = write_export(folder / "llamafactory", rows=4)
    settings = {recipe: SftSettings(recipe=recipe) for recipe in RECIPES}
    settings |= {kind: SftSettings() for kind in TRACKERS}
    settings["dev"] = SftSettings(recipe="paper", dev_share=0.1, patience=3)
    settings["misspelt"] = SftSettings(options={"freeze_vision_towers": True})
    return {
        name: llamafactory_config(
            SftJob(
                parent="Qwen/Qwen3-VL-8B-Instruct",
                data=data,
                datasets=["critic_sft"],
                settings=each,
            ),
            folder / name,
            tracking=TRACKERS.get(name, OFFLINE),
        )
        for name, each in settings.items()
    }


@pytest.fixture(scope="module")
def parsed(configs):
    return parse_all(ensure_environment("sft", "cpu"), PARSER, configs, os.environ)


@pytest.mark.parametrize("recipe", RECIPES)
def test_llamafactory_accepts_every_recipe(recipe, configs, parsed):
    config, understood = configs[recipe], parsed[recipe]
    assert understood["epochs"] == config["num_train_epochs"]
    assert understood["learning_rate"] == config["learning_rate"]
    assert understood["per_device"] == config["per_device_train_batch_size"]
    assert understood["accumulation"] == config["gradient_accumulation_steps"]
    assert understood["bf16"] is config["bf16"]
    assert understood["frozen"] == [recipe != "sketch"] * 2
    assert understood["gradient_checkpointing"] is (recipe != "sketch")
    assert understood["warmup"] == (5 if recipe == "sketch" else 10)
    assert understood["zero"] == (3 if recipe in ("paper", "reference") else None)
    assert understood["type"] == ("lora" if recipe == "lora" else "full")


@pytest.mark.parametrize("kind", TRACKERS)
def test_llamafactory_knows_every_tracker(kind, configs, parsed):
    understood = parsed[kind]
    assert understood["trackers"] == ([] if kind == "none" else [kind])
    assert understood["unknown_trackers"] == []
    assert understood["run"] == ["mine", configs[kind]["run_name"]]


def test_llamafactory_evaluates_at_every_checkpoint(parsed):
    understood = parsed["dev"]
    assert understood["evaluation"] == ["steps", 200.0, ["critic_sft_dev"], 3]
    assert understood["best"] == [True, "eval_loss", False]


def test_llamafactory_rejects_unknown_options(parsed):
    """So that the test above can fail."""
    assert "freeze_vision_towers" in parsed["misspelt"]["error"]
