"""Real LLaMA-Factory on a tiny model: training, interruption, resumption, two nodes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.tiny_model import build_untrained
from tests.training.sft.sft_runs import Training, settings, write_export

pytestmark = pytest.mark.long


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
    """A finished training and its driver's messages."""
    training = Training(tmp_path_factory.mktemp("run") / "job", parent, data, settings())
    return training, training.run()[0]


def points(messages):
    return [m["progress"] for m in messages if m["kind"] == "progress"]


def losses(messages):
    return [point["loss"] for point in points(messages)]


def test_a_training_learns_and_reports_progress(uninterrupted):
    training, messages = uninterrupted
    reported = points(messages)
    assert [point["step"] for point in reported] == list(range(1, 9))
    assert all(point["total"] == 8 and point["learning_rate"] >= 0 for point in reported)
    assert reported[-1]["loss"] < reported[0]["loss"]
    assert reported[-1]["samples_per_second"] > 0
    finished = messages[-1]["finished"]
    assert finished["model"] == str(training.folder / "model")
    assert finished["metrics"]["steps"] == 8 and finished["metrics"]["hours"] > 0
    assert list((training.folder / "tensorboard").glob("events.out.tfevents.*"))


def test_a_finished_training_is_not_started_again(uninterrupted):
    training, before = uninterrupted
    logs = sorted(training.folder.glob("llamafactory-*.log"))
    changed = [path.stat().st_mtime_ns for path in training.checkpoints.iterdir()]
    messages, _ = training.run()
    assert sorted(training.folder.glob("llamafactory-*.log")) == logs
    assert [path.stat().st_mtime_ns for path in training.checkpoints.iterdir()] == changed
    assert messages[-1] == before[-1]
    assert losses(messages) == losses(before)


def test_a_killed_training_resumes_and_ends_in_the_same_weights(
    uninterrupted, tmp_path, parent, data
):
    training = Training(tmp_path / "job", parent, data, settings())
    training.kill_at("checkpoint-6")
    damaged = training.checkpoints / "checkpoint-6"
    optimizer = damaged / "optimizer.pt"
    optimizer.write_bytes(optimizer.read_bytes()[:1000])
    messages, output = training.run()
    assert f"a half-written checkpoint was moved to {damaged}.broken" in output
    assert "4 steps are done already" in output
    assert [point["step"] for point in points(messages)] == list(range(1, 9))
    assert training.weights() == uninterrupted[0].weights()
    assert losses(messages) == losses(uninterrupted[1])


def test_the_best_checkpoint_is_kept_and_training_stops_early(tmp_path, parent, data):
    """A learning rate that makes every step worse, so that the first checkpoint is the best."""
    changes = {"dev_share": 0.3, "patience": 1, "learning_rate": 0.5, "save_steps": 1}
    training = Training(tmp_path / "job", parent, data, settings(**changes))
    messages, _ = training.run()
    metrics = messages[-1]["finished"]["metrics"]
    assert metrics["best_step"] < metrics["steps"] < 8 and metrics["dev_loss"] > 0
    best = training.checkpoints / f"checkpoint-{metrics['best_step']:.0f}" / "model.safetensors"
    assert training.weights() == best.read_bytes()
    assert training.run()[0][-1] == messages[-1]  # it is not trained on


def test_a_crash_is_one_line_with_the_log(tmp_path, parent, data):
    broken = write_export(tmp_path / "export", rows=4)
    for image in (broken / "images").iterdir():
        image.write_bytes(image.read_bytes()[:60])
    training = Training(tmp_path / "job", parent, broken, settings())
    messages, _ = training.run()
    failed = messages[-1]["failed"]
    assert "OSError" in failed["reason"] and "\n" not in failed["reason"]
    assert Path(failed["log"]).read_text()


@pytest.mark.slow
def test_a_second_node_joins_and_ends_with_the_model(tmp_path, parent, data, monkeypatch):
    """Two process groups of one machine without GPUs."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    how = settings(nodes=2, batch_per_device=2, max_steps=2)
    training = Training(tmp_path / "job", parent, data, how)
    training.job.write()
    command = [sys.executable, "-m", "training.sft.nodes", str(training.folder), "1"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        messages, output = training.run()
        said, _ = node.communicate(timeout=300)
    finally:
        node.kill()
    assert messages[-1]["kind"] == "finished", output
    assert messages[-1]["finished"]["metrics"]["steps"] == 2
    assert said == "node 1: LLaMA-Factory ended with 0\n" and node.returncode == 0
    assert training.weights()
