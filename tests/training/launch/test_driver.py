"""A driver started by hand, and the reasons given for a process that ended."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from inference.servers.gpus import claimed_gpus
from inference.servers.processes import exit_reason
from inference.servers.ray_jobs import reachable_host
from schemas import FoundryError
from tests.training.launch.launch_helpers import THREE_STEPS, toy_job
from training.launch.jobs import LauncherSettings, TrainingProgress


def test_a_driver_started_by_hand_prints_its_messages(tmp_path):
    file = toy_job(tmp_path, THREE_STEPS).write()
    toy = str(Path(__file__).parent / "toy_trainer.py")
    done = subprocess.run(
        [sys.executable, toy, str(file)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert kinds == ["progress", "progress", "progress", "finished"]


def test_a_driver_waits_for_its_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    code = 'import os; print("trained on", os.environ["CUDA_VISIBLE_DEVICES"])'
    job = toy_job(tmp_path, code).model_copy(update={"devices": (1,), "memory": 0.5})
    toy = str(Path(__file__).parent / "toy_trainer.py")
    with claimed_gpus([1], 1.0, "another training"):
        driver = subprocess.Popen(
            [sys.executable, toy, str(job.write())], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        waiting = f"GPU 7 is used by another training, process {os.getpid()}"
        assert driver.stdout.readline().strip() == waiting
    assert json.loads(driver.communicate()[0])["kind"] == "finished"
    assert (tmp_path / "trainer.log").read_text() == "trained on 7\n"


def test_an_exit_reason_is_one_line(tmp_path):
    path = tmp_path / "trainer.log"
    assert exit_reason(2, path) == "it ended with exit code 2"
    for code, log, expected in (
        (1, "Traceback ...\nValueError: no images\n", "it ended with ValueError: no images"),
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried", "it ran out of memory"),
        (1, "(TaskRunner pid=7) ray.exceptions.RayTaskError(KeyError): ray::x", "RayTaskError"),
        (-9, "step 4\n", "killed, most likely"),
        (137, "step 4\n", "killed, most likely"),
        (-15, "step 4\n", "signal SIGTERM"),
        (3, "step 4\n", "exit code 3"),
    ):
        path.write_text(log)
        line = exit_reason(code, path)
        assert expected in line and "\n" not in line


def test_progress_is_a_short_note():
    progress = TrainingProgress(step=3, total=9, loss=0.3123, samples_per_second=14.21)
    assert progress.note() == "loss 0.3123, 14.2 samples/s"


def test_a_ray_launcher_needs_an_address():
    with pytest.raises(ValidationError, match="needs an address"):
        LauncherSettings(kind="ray")


def test_drivers_start_without_the_heavy_libraries():
    drivers = [f"training.{name}.driver" for name in ("sft", "grpo")]
    drivers.append("inference.servers.server_process")
    code = f"import sys, {', '.join(drivers)}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert not {"dagster", "torch", "transformers"} & set(loaded.split())


def test_the_address_on_the_way_to_a_host():
    assert reachable_host("127.0.0.1") == "127.0.0.1"
    with pytest.raises(FoundryError, match="no network interface leads to no"):
        reachable_host("no.such.host.invalid")
