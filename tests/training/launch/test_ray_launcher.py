"""The Ray launcher against a real Ray on this machine, with the driver of the local launcher."""

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.servers.processes import JOB_MARK, WITHDRAWN, find_marked
from inference.servers.processes import main as supervisor_main
from tests.helpers.ray_nodes import ray_nodes
from tests.training.launch.launch_helpers import (
    THREE_STEPS,
    THREE_STEPS_ON_GO,
    follow,
    launch,
    run_in_process,
    toy_job,
    wait_for,
)
from training.launch.driver import TrainingFailedError
from training.launch.jobs import LauncherSettings
from training.launch.ray_job import RayDriver

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster() -> Iterator[LauncherSettings]:
    """A Ray head of the tests' own, with a token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        reset_auth_token_state()
        with ray_nodes(0, head_cpus=2) as nodes:
            yield LauncherSettings(kind="ray", address=nodes.address, grace_seconds=5)
    reset_auth_token_state()


def reset_auth_token_state() -> None:
    """Ray reads its variables once a process, perhaps for another test's Ray."""
    from ray._private import authentication_test_utils

    authentication_test_utils.reset_auth_token_state()


def test_a_driver_killed_in_a_ray_job_is_noticed(cluster, tmp_path):
    code = "import os, time; os.kill(os.getppid(), 9); time.sleep(600)"
    with pytest.raises(TrainingFailedError, match="training toy failed: it was killed"):
        launch(toy_job(tmp_path, code), cluster)
    assert not find_marked(JOB_MARK, str(tmp_path))


def test_a_ray_job_is_followed_when_its_run_was_killed(cluster, tmp_path):
    run = run_in_process(tmp_path, THREE_STEPS_ON_GO, cluster)
    wait_for(tmp_path / "starts")
    run.kill()
    run.wait()
    outcome, updates = follow(tmp_path, cluster)
    assert outcome.model == tmp_path / "model"
    assert (tmp_path / "starts").read_text().splitlines() == ["start"]
    assert [done for done, _, _ in updates] == [1, 2, 3]
    assert [point.step for point in outcome.curves] == [1, 2, 3]


def test_an_interrupted_run_stops_its_ray_job(cluster, tmp_path):
    code = "import pathlib, time; pathlib.Path('started').touch(); time.sleep(600)"
    threading.Thread(target=interrupt_when_there, args=(tmp_path / "started",), daemon=True).start()
    with pytest.raises(BaseException, match=r"^$|[Ii]nterrupt"):
        launch(toy_job(tmp_path, code), cluster)
    assert not find_marked(JOB_MARK, str(tmp_path))


def test_a_queued_job_is_left_to_the_next_run(cluster, tmp_path):
    """There is no GPU for it, so it waits."""
    job = toy_job(tmp_path, THREE_STEPS).model_copy(update={"gpus": 1})
    file = job.write()
    for _ in range(2):
        first, second = RayDriver(job, file, cluster), RayDriver(job, file, cluster)
        with first.run() as start:
            assert start({})() is None
        assert (tmp_path / WITHDRAWN).exists() and second.running
    assert supervisor_main(["no.such.module", str(file), "1"]) == 0


def interrupt_when_there(path: Path) -> None:
    import _thread

    while not path.exists():
        time.sleep(0.1)
    _thread.interrupt_main()
