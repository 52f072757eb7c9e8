"""The Ray launcher against a real Ray on this machine, with the driver of the local launcher."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import FoundryError
from tests.helpers.ports import free_port
from tests.training.launch.launch_helpers import THREE_STEPS, launch, toy_job
from training.launch.failures import TrainingFailedError
from training.launch.jobs import LauncherSettings
from training.launch.processes import JOB_MARK, find_marked, terminate_processes

CLUSTER_MARK = "INTERLEAVE_TEST_RAY"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LauncherSettings]:
    """A Ray of this test's own, guarded by a token of its own, and all of its processes ended."""
    # Ray's sockets need a short path.
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    port, mark = free_port(), folder.name
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        forget_tokens()
        try:
            start_head(folder, port, mark)
            wait_for_jobs(port)
            yield LauncherSettings(
                kind="ray", address=f"http://127.0.0.1:{port}", grace_seconds=5, log_seconds=0
            )
        finally:
            terminate_processes(lambda: find_marked(CLUSTER_MARK, mark), 5)
            shutil.rmtree(folder, ignore_errors=True)
    forget_tokens()


def forget_tokens() -> None:
    """Ray reads its variables once a process, and another test's Ray may have come before."""
    from ray._private.authentication_test_utils import reset_auth_token_state

    reset_auth_token_state()


def start_head(folder: Path, port: int, mark: str) -> None:
    options = {
        "port": 0,
        "num-cpus": 2,
        "object-store-memory": 100_000_000,
        "include-dashboard": "true",
        "dashboard-port": port,
        "temp-dir": folder,
        "node-ip-address": "127.0.0.1",
    }
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head"]
    command += ["--disable-usage-stats", *(f"--{name}={value}" for name, value in options.items())]
    environment = {**os.environ, CLUSTER_MARK: mark}
    started = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert started.returncode == 0, started.stderr


def wait_for_jobs(port: int) -> None:
    """`ray start` returns before its job server answers."""
    from ray.job_submission import JobSubmissionClient

    deadline = time.monotonic() + 180
    while True:
        try:
            JobSubmissionClient(f"http://127.0.0.1:{port}").list_jobs()
        except Exception:
            assert time.monotonic() < deadline
            time.sleep(1)
        else:
            return


@pytest.mark.slow
def test_a_training_as_a_ray_job(cluster, tmp_path):
    outcome, heard = launch(toy_job(tmp_path, THREE_STEPS), cluster)
    assert outcome.model == tmp_path / "model"
    assert [point.step for point in outcome.curves] == [1, 2, 3]
    assert [done for done, _, _ in heard.updates] == [1, 2, 3]


@pytest.mark.slow
def test_a_crash_of_a_ray_job_is_one_line(cluster, tmp_path):
    with pytest.raises(TrainingFailedError, match="ValueError: the template has no images"):
        launch(toy_job(tmp_path, "raise ValueError('the template has no images')"), cluster)


@pytest.mark.slow
def test_a_driver_killed_in_a_ray_job_is_noticed(cluster, tmp_path):
    code = "import os, time; os.kill(os.getppid(), 9); time.sleep(600)"
    with pytest.raises(TrainingFailedError, match="training toy failed: it was killed"):
        launch(toy_job(tmp_path, code), cluster)
    assert not find_marked(JOB_MARK, str(tmp_path))


@pytest.mark.slow
def test_an_interrupted_run_stops_its_ray_job(cluster, tmp_path):
    code = "import pathlib, time; pathlib.Path('started').touch(); time.sleep(600)"
    threading.Thread(target=interrupt_when, args=(tmp_path / "started",), daemon=True).start()
    with pytest.raises(BaseException, match=r"^$|[Ii]nterrupt"):
        launch(toy_job(tmp_path, code), cluster)
    assert not find_marked(JOB_MARK, str(tmp_path))


def interrupt_when(path: Path) -> None:
    import _thread

    while not path.exists():
        time.sleep(0.1)
    _thread.interrupt_main()


@pytest.mark.slow
def test_no_job_server_is_one_line(tmp_path):
    pytest.importorskip("ray")
    settings = LauncherSettings(kind="ray", address=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(FoundryError, match="no Ray job server at"):
        launch(toy_job(tmp_path, THREE_STEPS), settings)
