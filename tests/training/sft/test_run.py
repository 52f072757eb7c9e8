"""Real LLaMA-Factory on a tiny model: training, interruption, resumption."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.training.sft.sft_world import Training, settings, write_export
from training.base_model.architecture import build_untrained
from training.environments import ensure_environment
from training.sft.recipe import llamafactory_config
from training.sft.settings import SftSettings

pytestmark = pytest.mark.slow
PARSER = Path(__file__).parent / "parse_config.py"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_export(tmp_path_factory.mktemp("export") / "llamafactory")


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parent") / "untrained"
    build_untrained(folder)
    return folder


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, parent, data):
    """A finished training and what its driver said."""
    training = Training(tmp_path_factory.mktemp("whole") / "job", parent, data, settings())
    return training, training.run()[0]


def points(messages):
    return [m["progress"] for m in messages if m["kind"] == "progress"]


def test_it_learns_and_tells_how(uninterrupted):
    training, messages = uninterrupted
    told = points(messages)
    assert [point["step"] for point in told] == list(range(1, 9))
    assert all(point["total"] == 8 and point["learning_rate"] >= 0 for point in told)
    assert told[-1]["loss"] < told[0]["loss"]
    assert told[-1]["samples_per_second"] > 0
    finished = messages[-1]["finished"]
    assert finished["model"] == str(training.folder / "model")
    assert finished["metrics"]["steps"] == 8


def test_the_model_can_be_used(uninterrupted):
    from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

    from inference.backends import torch_cpu_shim

    torch_cpu_shim.install()
    folder = uninterrupted[0].folder / "model"
    assert not {"optimizer.pt", "trainer_state.json"} & {path.name for path in folder.iterdir()}
    model = Qwen3VLForConditionalGeneration.from_pretrained(folder)
    assert AutoProcessor.from_pretrained(folder).tokenizer.vocab_size
    assert model.num_parameters() > 1_000_000


def test_a_finished_training_is_not_started_again(uninterrupted):
    training, before = uninterrupted
    logs = sorted(training.folder.glob("llamafactory-*.log"))
    changed = [path.stat().st_mtime_ns for path in training.checkpoints.iterdir()]
    messages, _ = training.run()
    assert sorted(training.folder.glob("llamafactory-*.log")) == logs
    assert [path.stat().st_mtime_ns for path in training.checkpoints.iterdir()] == changed
    assert messages[-1] == before[-1]
    assert [p["loss"] for p in points(messages)] == [p["loss"] for p in points(before)]


def test_a_killed_one_goes_on_to_the_same_weights(uninterrupted, tmp_path, parent, data):
    training = Training(tmp_path / "job", parent, data, settings())
    training.kill_at("checkpoint-6")
    damaged = training.checkpoints / "checkpoint-6"
    optimizer = damaged / "optimizer.pt"
    optimizer.write_bytes(optimizer.read_bytes()[:1000])
    messages, said = training.run()
    assert f"a half-written checkpoint was set aside: {damaged}.broken" in said
    assert "4 steps are done already" in said
    assert [point["step"] for point in points(messages)] == list(range(1, 9))
    assert training.weights() == uninterrupted[0].weights()
    whole = points(uninterrupted[1])
    assert [p["loss"] for p in points(messages)] == [p["loss"] for p in whole]


def test_a_crash_is_one_line_with_the_log(tmp_path, parent, data):
    broken = write_export(tmp_path / "export", rows=4)
    for picture in (broken / "images").iterdir():
        picture.write_bytes(b"no picture")
    training = Training(tmp_path / "job", parent, broken, settings())
    messages, _ = training.run()
    failed = messages[-1]["failed"]
    assert "UnidentifiedImageError" in failed["reason"] and "\n" not in failed["reason"]
    assert Path(failed["log"]).read_text()


@pytest.mark.parametrize("recipe", ["sketch", "paper", "lora"])
def test_llamafactory_accepts_every_recipe(recipe, tmp_path, data):
    """Its own parser, in its environment, on the configuration as it is llamafactory_config."""
    how = SftSettings(recipe=recipe)
    config = llamafactory_config(how, "Qwen/Qwen3-VL-8B-Instruct", data, ["critic_sft"], tmp_path)
    understood = parsed(tmp_path / "config.yaml", config)
    assert understood["epochs"] == config["num_train_epochs"]
    assert understood["learning_rate"] == config["learning_rate"]
    assert understood["per_device"] == config["per_device_train_batch_size"]
    assert understood["accumulation"] == config["gradient_accumulation_steps"]
    assert understood["bf16"] is config["bf16"]
    assert understood["frozen"] == [recipe != "sketch"] * 2
    assert understood["gradient_checkpointing"] is (recipe != "sketch")
    assert understood["warmup"] == (5 if recipe == "sketch" else 10)
    assert understood["zero"] == (3 if recipe == "paper" else None)
    assert understood["type"] == ("lora" if recipe == "lora" else "full")


def test_llamafactory_rejects_what_it_does_not_know(tmp_path, data):
    """So that the test above can fail."""
    how = SftSettings(options={"freeze_vision_towers": True})
    config = llamafactory_config(how, "base", data, ["critic_sft"], tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as error:
        parsed(tmp_path / "config.yaml", config)
    assert "freeze_vision_towers" in error.value.stderr


def parsed(path, config):
    path.write_text(yaml.safe_dump(config))
    command = [str(ensure_environment("sft", "cpu")), str(PARSER), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
