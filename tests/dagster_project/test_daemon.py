"""A night and a day of a running daemon, as `interleave ui` starts it: from a schedule's tick to
other agents in the service, and a run whose process is killed on the way.

All is real but the trainers, which hand out the base model: a version differs in its rows alone.
"""

import json
import os
import signal
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from assets.checkpoints import training
from assets.core.foundry import FoundryResource
from dagster_project.instance import open_instance
from dagster_project.retraining import decide
from dagster_project.run import run_lineage
from schemas.trajectories import SCORES
from tests.dagster_project.conftest import trained_foundry
from tests.helpers.automation import (
    runs,
    start_schedule,
    start_sensor,
    stop_schedule,
    ticks,
    wait_until,
    worker_of,
)
from tests.helpers.browser import dagster_ui, interleave_serve, materialized_partitions
from tests.helpers.fake_launcher import FakeLauncher
from training.registry import CheckpointRegistry

pytestmark = [pytest.mark.slow, pytest.mark.long]
# The trainers are fake, so the reinforced critic is no better than the supervised one.
AGENTS = {"planner": "planner_sft_checkpoint", "critic": "critic_sft_checkpoint"}
SHARDS = ["sketchbook-0000", "sketchbook-0001"]
SENSORS = {
    "follow_reviews",
    "follow_upstream",
    "make_shards",
    "notify_budget",
    "notify_failures",
    "register_requests",
    "retrain_when_grown",
}
UNTRAINED = yaml.safe_dump(
    {
        "load_from": [
            {
                "python_module": {
                    "module_name": "tests.helpers.untrained_lineage",
                    "location_name": "interleave",
                    "executable_path": sys.executable,
                    "working_directory": str(Path(__file__).parents[2]),
                }
            }
        ]
    }
)


@pytest.fixture
def foundry(trained_folder, tmp_path) -> FoundryResource:
    sections = "notifications: {webhook: TEST_WEBHOOK}\n"
    return trained_foundry(trained_folder, tmp_path / "home", sections)


@pytest.fixture
def ui(foundry, webhook, monkeypatch):
    """A daemon, on a lake of one shard whose agents are promoted, with fake trainers."""
    monkeypatch.setattr(training, "run_job", FakeLauncher().run_job)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    night = {f"INTERLEAVE_{name}_CRON": "* * * * *" for name in ("GROW", "RETRAIN")}
    variables = {"TEST_WEBHOOK": webhook.url, **night}
    with open_instance(foundry.home) as instance, ThreadPoolExecutor(1) as thread:
        (foundry.home.dagster / "workspace.yaml").write_text(UNTRAINED)
        lineage = thread.submit(run_lineage, foundry, instance, shards=1)
        with dagster_ui(Path(foundry.root), Path(foundry.profile), variables) as url:
            lineage.result()
            yield url


def promoted(foundry):
    registry = CheckpointRegistry(foundry.home)
    return {role: registry.promoted(name).version for role, name in AGENTS.items()}


def served(url):
    with urllib.request.urlopen(f"{url}/ready", timeout=30) as answer:
        versions = json.load(answer)["versions"]
    return {role: versions[role].rpartition("@")[2] for role in AGENTS}


def exports(url):
    """How often they were materialized."""
    return len(materialized_partitions(url)[0]["exports"])


def trainings(url):
    """Runs by `retrain_when_grown`, whose tags they have."""
    return [run for run in runs(url) if run["sensor"] == "retrain_when_grown"]


def statuses(url, partition):
    """Of its runs, newest first."""
    return [run["status"] for run in runs(url) if run["partition"] == partition]


def kill_at_work(foundry, url):
    """Kill the process of the new shard's run while it makes trajectories."""
    wait_until(lambda: "STARTED" in statuses(url, SHARDS[1]))
    (run,) = (run for run in runs(url) if run["partition"] == SHARDS[1])
    journal = Path(foundry.root, "journals", "trajectories", f"{SHARDS[1]}.jsonl")
    wait_until(journal.exists, pause=0.05)
    os.kill(worker_of(url, run["runId"]), signal.SIGKILL)


def test_from_a_schedules_tick_to_other_agents_of_the_service(foundry, ui, webhook):
    first, exported = promoted(foundry), exports(ui)
    start_schedule(ui, "grow_bank")
    start_sensor(ui, "make_shards")
    with interleave_serve(Path(foundry.root)) as service:
        assert served(service) == first
        kill_at_work(foundry, ui)
        stop_schedule(ui, "grow_bank")
        wait_until(lambda: statuses(ui, SHARDS[1]) == ["SUCCESS", "FAILURE"])
        assert foundry.home.lake.partitions(SCORES) == SHARDS
        (line,) = webhook.lines
        assert f"[{SHARDS[1]}] failed; it is started again" in line
        wait_until(lambda: exports(ui) > exported)
        wait_until(lambda: all(decide(foundry, role).is_due for role in AGENTS))

        start_sensor(ui, "retrain_when_grown")
        wait_until(lambda: not promoted(foundry).items() & first.items())
        wait_until(lambda: served(service) == promoted(foundry))
    ticked = ticks(ui)
    assert all(ticked[sensor] for sensor in SENSORS)
    assert not [tick["error"] for each in ticked.values() for tick in each if tick["error"]]
    event = CheckpointRegistry(foundry.home).history(AGENTS["planner"])[-1]
    assert event.system == {each: promoted(foundry)[role] for role, each in AGENTS.items()}
    assert len(trainings(ui)) == 1, "both agents are trained, evaluated and promoted in one run"
