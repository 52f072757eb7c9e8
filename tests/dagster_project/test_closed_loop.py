"""From a schedule's tick to another version in the service, by a daemon and nobody's hand.

All is real but the trainers, which hand out the base model: a version differs in its rows alone.
"""

import json
import sys
import textwrap
import urllib.request
from pathlib import Path

import pytest
import yaml

from assets.checkpoints import training
from assets.core.foundry import FoundryResource
from dagster_project.instance import open_instance
from dagster_project.run import run_lineage
from schemas.trajectories import SCORES
from tests.dagster_project.test_training_lineage import PROFILE
from tests.helpers.automation import start_schedule, start_sensor, stop_schedule, wait_until
from tests.helpers.browser import dagster_ui, interleave_serve, materialized_partitions
from tests.helpers.fake_launcher import FakeLauncher
from training.registry import CheckpointRegistry

pytestmark = pytest.mark.long
AGENTS = {"planner": "planner_sft_checkpoint", "critic": "critic_rl_checkpoint"}
SHARDS = ["sketchbook-0000", "sketchbook-0001"]


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "closed.yaml"
    text = textwrap.dedent(PROFILE).replace("side_by_side: true", "side_by_side: false")
    path.write_text(text)
    return path


@pytest.fixture
def foundry(tmp_path, profile, monkeypatch) -> FoundryResource:
    """A lake of one shard with its first agents promoted."""
    foundry = FoundryResource(profile=str(profile), root=str(tmp_path / "home"))
    monkeypatch.setattr(training, "run_job", FakeLauncher().run_job)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with open_instance(foundry.home) as instance:
        run_lineage(foundry, instance, shards=1)
    return foundry


@pytest.fixture
def ui(foundry, profile):
    """The daemon, with the fake trainers in its workspace."""
    code = {
        "module_name": "tests.helpers.untrained_lineage",
        "location_name": "interleave",
        "executable_path": sys.executable,
        "working_directory": str(Path(__file__).parents[2]),
    }
    workspace = yaml.safe_dump({"load_from": [{"python_module": code}]})
    (foundry.home.dagster / "workspace.yaml").write_text(workspace)
    with dagster_ui(Path(foundry.root), profile, {"INTERLEAVE_GROW_CRON": "* * * * *"}) as url:
        yield url


def promoted(foundry):
    registry = CheckpointRegistry(foundry.home)
    return {role: registry.promoted(name).version for role, name in AGENTS.items()}


def served(url):
    with urllib.request.urlopen(f"{url}/ready", timeout=30) as answer:
        versions = json.load(answer)["versions"]
    return {role: versions[role].rpartition("@")[2] for role in AGENTS}


def test_a_grown_bank_ends_in_other_agents_of_the_service(foundry, ui):
    first = promoted(foundry)
    exports = len(materialized_partitions(ui)[0]["exports"])
    with interleave_serve(Path(foundry.root)) as service:
        assert served(service) == first

        start_schedule(ui, "grow_bank")
        wait_until(lambda: SHARDS[1] in materialized_partitions(ui)[0]["plans"])
        stop_schedule(ui, "grow_bank")
        wait_until(lambda: foundry.home.lake.partitions(SCORES) == SHARDS)
        wait_until(lambda: len(materialized_partitions(ui)[0]["exports"]) > exports)

        start_sensor(ui, "retrain_when_grown")
        wait_until(lambda: not promoted(foundry).items() & first.items(), seconds=900)
        wait_until(lambda: served(service) == promoted(foundry))
