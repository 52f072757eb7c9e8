"""Curation as a job of a Ray cluster: its groups of shards are tasks on several nodes."""

import sys
import time
from pathlib import Path

import pytest

from assets.curation.critic_sets import build_critic_rl
from assets.curation.planner_sets import build_planner_sft
from assets.curation.settings import CurationSettings
from assets.curation.steps import build_steps
from schemas.curation import CRITIC_RL, PLANNER_SFT, STEPS
from tests.assets.curation.curated_world import World
from tests.helpers.ray_nodes import ray_nodes
from warehouse import Home

pytestmark = [pytest.mark.slow, pytest.mark.long]

SETTINGS = CurationSettings(critic={"canvas_size": 16})
SETS = {STEPS: build_steps, CRITIC_RL: build_critic_rl, PLANNER_SFT: build_planner_sft}
REPOSITORY = Path(__file__).parents[2]


def curate(home: Home) -> dict[str, str]:
    """Make the sets, a group a shard; their content hashes."""
    from assets.curation import shards

    shards.GROUP_ROWS = 1
    return {
        table.name: home.lake.write(table, build(home, SETTINGS)[0]).content_hash
        for table, build in SETS.items()
    }


def test_groups_of_shards_are_tasks_on_several_nodes(bucket, tmp_path):
    for home in (Home(bucket), Home(tmp_path / "home")):
        fill(World(home))
    with ray_nodes(2, head_cpus=1) as nodes:
        finished = run_job(nodes, bucket)
        places = [task.node_id for task in finished_tasks(nodes)]
    assert len(places) >= 24 and len(set(places)) >= 2
    assert finished == str(curate(Home(tmp_path / "home")))


def fill(world: World) -> None:
    for number in range(12):
        for letter in "ab":
            chain = [(2 + number / 4, False), (8, True)]
            world.add(f"{letter}{number}", chain, [(9, True)], shard=f"toy-{number:04d}")
    world.write()


def run_job(nodes, bucket: str) -> str:
    """Curate in a job, as Dagster's runs are; returns what it prints last."""
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(nodes.address)
    job = client.submit_job(
        entrypoint=f"{sys.executable} -m tests.dagster_project.test_ray_curation {bucket}",
        runtime_env={"env_vars": {"PYTHONPATH": str(REPOSITORY)}},
        entrypoint_num_cpus=1,
    )
    deadline = time.monotonic() + 400
    while not (status := client.get_job_status(job)).is_terminal():
        assert time.monotonic() < deadline, client.get_job_logs(job)
        time.sleep(1)
    log = client.get_job_logs(job)
    assert status == "SUCCEEDED", log
    return log.strip().splitlines()[-1]


def finished_tasks(nodes) -> list:
    from ray.util.state import list_tasks

    filters = [("name", "=", "_ray_task"), ("state", "=", "FINISHED")]
    return list_tasks(nodes.address, filters=filters, limit=1000, detail=True)


if __name__ == "__main__":
    print(curate(Home(sys.argv[1])))
