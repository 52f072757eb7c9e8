"""A backfill of shards over a Ray cluster, lake and journals on S3, and a node that dies."""

import os
import re
import subprocess
import sys
import time

import dagster as dg
import pytest

from dagster_project.instance import RUNNER, RUNNER_TAG, open_instance
from dagster_project.run import run_lineage
from schemas.trajectories import MODEL_CALLS, SCORES, TRAJECTORIES
from tests.dagster_project.conftest import tiny_foundry
from tests.helpers.ray_nodes import ray_nodes
from tests.inference.backends.providers.faulty_provider import KEY, FaultSchedule, provider

pytestmark = [pytest.mark.slow, pytest.mark.long]

SHARDS, STORIES, AGENTS = 2, 12, 4
ROLES = {"planner": "openai", "generator": "sketch", "critic": "openai", "scorer": "openai"}


@pytest.fixture
def machines(bucket, tmp_path, monkeypatch):
    """Provider, nodes, profile and home of a cluster; nodes have the key in their environment."""
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv("INTERLEAVE_LEASE_SECONDS", "30")  # less is lost on a busy machine
    monkeypatch.setenv("INTERLEAVE_LOCAL", str(tmp_path / "local"))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with provider(FaultSchedule(latency=0.4)) as server, ray_nodes(SHARDS) as nodes:
        endpoints = [{"url": f"{server.url}/v1", "key": "TEST_KEY"}]
        model = {"model": "m-1"}
        foundry = tiny_foundry(
            tmp_path,
            bucket,
            roles=ROLES,
            bank={"shard_size": STORIES},
            limits={"agents": AGENTS},
            openai={"endpoints": endpoints, "planner": model, "critic": model, "scorer": model},
            cluster={"ray": {"address": nodes.address}, "runs": SHARDS + 1},  # and `own`
        )
        monkeypatch.setenv("INTERLEAVE_PROFILE", foundry.profile)
        monkeypatch.setenv("INTERLEAVE_HOME", bucket)
        yield server, nodes, foundry


@pytest.fixture
def dagster(machines, tmp_path):
    """The instance, with its daemon at work."""
    _, _, foundry = machines
    with open_instance(foundry.home, foundry.settings.cluster) as instance:
        command = [sys.executable, "-m", "dagster._daemon", "run", "-w", workspace()]
        log = (tmp_path / "daemon.log").open("w")
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield instance
        finally:
            daemon.terminate()
            daemon.wait(60)
            print((tmp_path / "daemon.log").read_text()[-5000:])  # shown where the test fails


def workspace():
    return f"{os.environ['DAGSTER_HOME']}/workspace.yaml"


def test_a_dead_nodes_shard_goes_on_elsewhere_and_pays_for_nothing_twice(machines, dagster):
    server, nodes, foundry = machines
    own = dg.DagsterRun("own", status=dg.DagsterRunStatus.STARTED, tags={RUNNER_TAG: RUNNER})
    dagster.add_run(own)
    run_lineage(foundry, dagster, SHARDS, ["taxonomy", "vocabulary", "templates", "prompts"])
    backfill(dagster.get_dynamic_partitions("shards"))
    victim = node_at_work(nodes, server, dagster)
    nodes.kill(victim)
    runs = finished(dagster)
    assert not failures(dagster, runs)
    assert [run.status for run in runs] == [dg.DagsterRunStatus.SUCCESS] * SHARDS
    assert len({job.driver_node_id for job in nodes.jobs()} - {None}) >= 2
    assert resumed(dagster, runs) >= 1
    mine = dagster.get_run_by_id(own.run_id)
    assert mine and not mine.is_finished, "what `interleave run` executes itself is no dead job"
    # Only what was being answered when the node died was asked once more.
    assert sum(server.answered.values()) - paid_calls(foundry) <= AGENTS
    lake = foundry.home.lake
    assert lake.rows(TRAJECTORIES) == SHARDS * STORIES and lake.rows(SCORES) > SHARDS * STORIES


def paid_calls(foundry):
    rows = foundry.home.lake.read(MODEL_CALLS, columns=["backend", "cached"]).to_pylist()
    return sum(row["backend"] == "openai" and not row["cached"] for row in rows)


def backfill(shards):
    command = [sys.executable, "-m", "dagster", "job", "backfill", "-w", workspace()]
    command += ["-j", "refresh_data", "--partitions", ",".join(shards), "--noprompt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def node_at_work(nodes, server, instance):
    """A node in the midst of a shard, while another one is at work, too.

    Its run has started: of one whose process was only starting, Dagster waits three minutes.
    """
    for _ in range(2000):
        at_work = {
            job.metadata["dagster/run-id"]: job.driver_node_id
            for job in nodes.jobs()
            if job.status == "RUNNING" and job.driver_node_id
        }
        started = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        begun = [at_work[run.run_id] for run in started if run.run_id in at_work]
        if begun and len(set(at_work.values())) >= 2 and sum(server.answered.values()) > 30:
            return begun[0]
        time.sleep(0.2)
    raise AssertionError(f"never two nodes at work: {nodes.jobs()}")


def finished(instance):
    for _ in range(600):
        runs = [run for run in instance.get_runs() if run.tags.get("dagster/backfill")]
        if len(runs) == SHARDS and all(run.is_finished for run in runs):
            return runs
        time.sleep(1)
    raise AssertionError(f"not finished: {[run.status for run in instance.get_runs()]}")


def failures(instance, runs):
    """What Dagster says of each run that failed."""
    kind = dg.DagsterEventType.RUN_FAILURE
    return [e.message for run in runs for e in instance.all_logs(run.run_id, of_type=kind)]


def resumed(instance, runs):
    events = [event.message for run in runs for event in instance.all_logs(run.run_id)]
    return sum(bool(re.match("Launching a new run worker to resume run", text)) for text in events)
