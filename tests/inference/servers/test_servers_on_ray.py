"""Servers on a real Ray cluster of this machine, whose nodes say that they have a GPU each."""

import os
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from dagster_project.cli.app import app
from inference.servers import hosts
from inference.servers.ray_jobs import gpus_of_nodes
from schemas.views import SERVER_HOURS
from tests.helpers.ray_nodes import ray_nodes
from tests.inference.servers import toy_model
from tests.inference.servers.conftest import forget_uses, only_server, processes_of, wait_until
from tests.inference.servers.test_servers import user_of
from tests.inference.servers.toy_model import draw
from tests.training.launch.launch_helpers import THREE_STEPS, launch, toy_job
from training.launch.jobs import LauncherSettings

pytestmark = [pytest.mark.slow, pytest.mark.long]

LEASE_SECONDS = "10"  # less is lost on a busy machine


@pytest.fixture(scope="module")
def nodes():
    """One node with a GPU, and a head that takes no work."""
    root = str(Path(toy_model.__file__).parents[3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERLEAVE_LEASE_SECONDS", LEASE_SECONDS)
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        with ray_nodes(1, gpus=1) as nodes:
            yield nodes


@pytest.fixture
def on_ray(nodes, monkeypatch):
    monkeypatch.setattr(hosts, "SUPERVISOR", toy_model.QUICK_SUPERVISOR)
    return {"ray": nodes.address, "gpus": [0]}


def test_processes_share_a_server_until_a_training_needs_its_gpu(nodes, on_ray, home, tmp_path):
    with user_of(home, **on_ray) as user:
        first = int(user.stdout.readline())
        assert draw(home.root, **on_ray) == first
        folder = only_server(home)
        assert folder.state().state == "ready"
        assert "1 of Ray" in listed(home) and folder.state().url in listed(home)
        train(nodes, tmp_path / "job")
        assert draw(home.root, **on_ray) != first
    forget_uses()
    wait_until(lambda: not folder.is_supervised)
    assert not processes_of(folder)
    runs = home.lake.read(SERVER_HOURS).to_pylist()
    assert [run["gpus"] for run in runs] == [1, 1]
    assert all(run["gpu_hours"] > 0 for run in runs)


def listed(home):
    return CliRunner().invoke(app, ["servers", "--home", home.root]).output


def train(nodes, folder):
    """A training with the GPU, of which there is one."""
    job = toy_job(folder, THREE_STEPS).model_copy(update={"gpus": 1})
    outcome, _ = launch(job, LauncherSettings(kind="ray", address=nodes.address))
    assert [point.step for point in outcome.curves] == [1, 2, 3]


def test_a_dead_nodes_server_is_started_elsewhere(nodes, on_ray, home):
    first = draw(home.root, **on_ray)
    folder = only_server(home)
    (job,) = [job for job in nodes.jobs() if job.status == "RUNNING"]
    assert job.submission_id == folder.host.name and sorted(gpus_of_nodes(nodes.address)) == [0, 1]
    actor_of(folder.state().pid).kill()
    wait_until(lambda: not processes_of(folder))
    nodes.kill(job.driver_node_id)
    nodes.add()
    assert draw(home.root, **on_ray) != first


def actor_of(supervisor):
    """Ray's process that runs a job."""
    parents = psutil.Process(supervisor).parents()
    return next(parent for parent in parents if "JobSupervisor" in " ".join(parent.cmdline()))
