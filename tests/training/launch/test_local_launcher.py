"""The local launcher: outcomes, failures in one line, and processes that must end."""

import os
import signal
import subprocess
from pathlib import Path

import dagster as dg
import psutil
import pytest

from inference.servers.processes import JOB_MARK, find_marked
from schemas import FoundryError
from tests.training.launch.launch_helpers import (
    THREE_STEPS,
    THREE_STEPS_ON_GO,
    RecordedProgress,
    follow,
    launch,
    launch_all,
    logged,
    run_in_process,
    toy_job,
    wait_for,
)
from training.launch import launcher
from training.launch.driver import TrainingFailedError
from training.launch.jobs import LauncherSettings

HERE = Path(__file__).parent
# Ignores TERM and has a child in a session of its own that does so, too.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stray = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", stray], start_new_session=True)
pathlib.Path("pids.partial").write_text(f"{os.getpid()} {child.pid}")
os.replace("pids.partial", "pids")
time.sleep(600)
"""


def remaining(folder: Path) -> list[psutil.Process]:
    return find_marked(JOB_MARK, str(folder))


def have_ended(pids: list[int]) -> bool:
    """A zombie that no init removes has ended as well."""
    alive = [psutil.Process(pid).status() for pid in pids if psutil.pid_exists(pid)]
    return all(status == psutil.STATUS_ZOMBIE for status in alive)


# Has a secret, and leaves a process in a session of its own.
WITH_SECRET = """
import os, pathlib, subprocess, sys
assert len(os.environ["TOKEN"]) == 9
nap = [sys.executable, "-c", "import time; time.sleep(600)"]
pathlib.Path("pids").write_text(str(subprocess.Popen(nap, start_new_session=True).pid))
"""


def test_a_training_reports_live_and_leaves_a_model_but_no_process_and_no_secret(tmp_path):
    job = toy_job(tmp_path, WITH_SECRET + THREE_STEPS)
    job = job.model_copy(update={"environment": {**job.environment, "TOKEN": "hush-hush"}})
    unrelated = subprocess.Popen(["sleep", "60"], env={**os.environ, JOB_MARK: f"{tmp_path}2"})
    try:
        with dg.DagsterInstance.ephemeral() as instance:
            outcome, updates = launch(job, instance=instance)
            assert logged(instance, "toy: step 3 of 3, loss 0.3333")
        assert have_ended([int((tmp_path / "pids").read_text())])
        assert unrelated.poll() is None
    finally:
        unrelated.kill()
        unrelated.wait()
    assert outcome.model == tmp_path / "model"
    assert outcome.metrics["loss"] == 0.25
    assert 0.2 < outcome.metrics["hours"] * 3600 < 100
    assert [point.loss for point in outcome.curves] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert [(done, total) for done, total, _ in updates] == [(1, 3), (2, 3), (3, 3)]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not [path for path in files if b"hush-hush" in path.read_bytes()]


def test_concurrent_trainings_have_separate_outcomes(tmp_path):
    folders = [tmp_path / "one", tmp_path / "other"]
    wait_for_each_other = """
import pathlib, time
pathlib.Path("started").touch()
while not all(pathlib.Path("..", name, "started").exists() for name in ("one", "other")):
    time.sleep(0.05)
"""
    jobs = [toy_job(folder, wait_for_each_other + THREE_STEPS) for folder in folders]
    outcomes = launch_all(jobs, RecordedProgress())
    assert [outcome.model for outcome in outcomes] == [folder / "model" for folder in folders]


def test_a_failing_training_ends_the_other(tmp_path):
    fails = """
import pathlib, time
while not pathlib.Path("../stubborn/pids").exists():
    time.sleep(0.05)
raise SystemExit(1)
"""
    jobs = [toy_job(tmp_path / "stubborn", STUBBORN), toy_job(tmp_path / "fails", fails)]
    with pytest.raises(TrainingFailedError, match="exit code 1"):
        launch_all(jobs, RecordedProgress(), LauncherSettings(grace_seconds=0.5))
    assert have_ended([int(pid) for pid in (tmp_path / "stubborn" / "pids").read_text().split()])
    assert not remaining(tmp_path / "stubborn")


FAILURES = {
    # Code of the trainer, changes of its job -> the reason, and the log that it names.
    "crash": (
        "raise ValueError('the template has no images')",
        {},
        r"ValueError: the template has no images.*trainer\.log",
    ),
    "killed": ("import os; os.kill(os.getpid(), 9)", {}, "killed, most likely by the system for"),
    "killed with its driver": (
        "import os, time; os.kill(os.getppid(), 9); time.sleep(600)",
        {},
        r"killed, most likely.*driver\.log",
    ),
    "silent": ("", {"payload": {"code": "", "silent": True}}, "ended without a model"),
    "no model": ("", {"payload": {"code": "", "no_model": True}}, "no model in"),
    "no driver": ("", {"module": "no_such_driver"}, "exit code 1"),
}


def test_failures_are_one_line_with_the_log(tmp_path):
    for name, (code, changes, reason) in FAILURES.items():
        folder = tmp_path / name
        with pytest.raises(TrainingFailedError, match=reason) as raised:
            launch(toy_job(folder, code).model_copy(update=changes))
        assert "\n" not in str(raised.value) and not remaining(folder), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        signal.SIGKILL,
    ],
)
def test_a_run_that_ends_takes_every_process_with_it(tmp_path, number):
    run = run_in_process(tmp_path, STUBBORN)
    try:
        wait_for(tmp_path / "pids")
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert not have_ended(pids)
        run.send_signal(number)
        run.wait(60)
        # A killed run cannot clean up: its driver notices and does.
        driver_and_trainer = remaining(tmp_path)
        psutil.wait_procs(driver_and_trainer, timeout=60)
        assert have_ended(pids) and not remaining(tmp_path)
    finally:
        run.kill()
        run.wait()
        for process in remaining(tmp_path):
            process.kill()


@pytest.mark.slow
def test_the_next_run_ends_what_a_killed_one_remaining(tmp_path):
    run = run_in_process(tmp_path, STUBBORN)
    try:
        wait_for(tmp_path / "pids")
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        driver = psutil.Process(pids[0]).parent()
        # The driver cannot help any more, either.
        driver.send_signal(signal.SIGSTOP)
        run.kill()
        run.wait()
        driver.kill()
        assert not have_ended(pids)
        launch(toy_job(tmp_path, THREE_STEPS), LauncherSettings(grace_seconds=1))
        assert have_ended(pids)
    finally:
        for process in remaining(tmp_path):
            process.kill()


@pytest.fixture
def left_running(tmp_path):
    """A detached training after its run was killed, at its first step; ended afterwards."""
    settings = LauncherSettings(detached=True, grace_seconds=1)
    run = run_in_process(tmp_path, THREE_STEPS_ON_GO, settings)
    try:
        wait_for(tmp_path / "starts")
        run.kill()
        run.wait()
        yield settings
    finally:
        run.kill()
        for process in remaining(tmp_path):
            process.kill()


@pytest.mark.slow
def test_a_detached_training_is_followed_when_its_run_was_killed(tmp_path, left_running):
    assert remaining(tmp_path)
    outcome, updates = follow(tmp_path, left_running)
    assert (tmp_path / "starts").read_text().splitlines() == ["start"]
    assert [point.step for point in outcome.curves] == [1, 2, 3]
    assert [done for done, _, _ in updates] == [1, 2, 3]
    assert not remaining(tmp_path)


@pytest.mark.slow
def test_a_run_that_fails_before_it_follows_a_training_ends_it(tmp_path, left_running, monkeypatch):
    def fail(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(launcher, "_pipes_session", fail)
    assert remaining(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        launch(toy_job(tmp_path, THREE_STEPS_ON_GO), left_running)
    assert not remaining(tmp_path)


@pytest.mark.long
def test_cancelling_a_followed_training_ends_it(tmp_path, left_running):
    pids = [process.pid for process in remaining(tmp_path)]
    context = tmp_path / "pipes_context.json"
    context.unlink()  # each run writes its own, before it follows
    follower = run_in_process(tmp_path, THREE_STEPS_ON_GO, left_running)
    try:
        wait_for(context)
        assert not have_ended(pids)
        follower.send_signal(signal.SIGTERM)
        follower.wait(60)
        assert have_ended(pids)
    finally:
        follower.kill()
        follower.wait()


def test_two_trainings_cannot_share_a_folder(tmp_path):
    import fcntl

    with (tmp_path / "job.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FoundryError, match="being trained in"):
            launch(toy_job(tmp_path, THREE_STEPS))
