"""A running daemon: its schedules, sensors and backfills, as `interleave ui` starts it."""

import textwrap

import pytest

from assets.core.foundry import FoundryResource
from schemas.prompts import PROMPTS
from schemas.trajectories import PLANS, SCORES
from tests.helpers.automation import backfill, runs, start_schedule, start_sensor, ticks, wait_until
from tests.helpers.browser import TINY_PROFILE, dagster_ui, interleave
from tests.helpers.webhook import webhook_server

pytestmark = pytest.mark.long
SHARDS = ["sketchbook-0000", "sketchbook-0001"]
SENSORS = {"follow_upstream", "notify_failures", "register_requests", "retrain_when_grown"}
SETTINGS = """
    training: {retrain_after_rows: 100000}
    notifications: {webhook: TEST_WEBHOOK}
"""


@pytest.fixture
def foundry(tmp_path) -> FoundryResource:
    """A bank of two shards, of which the second has lost its prompts."""
    profile = tmp_path / "tiny.yaml"
    profile.write_text(textwrap.dedent(TINY_PROFILE) + textwrap.dedent(SETTINGS))
    foundry = FoundryResource(profile=str(profile), root=str(tmp_path / "home"))
    assets = "taxonomy,vocabulary_expansion,vocabulary,templates,prompts"
    interleave("run", tmp_path / "home", profile, "--select", assets)
    foundry.home.lake.delete(PROMPTS, SHARDS[1])
    return foundry


@pytest.fixture
def webhook():
    with webhook_server() as server:
        yield server


@pytest.fixture
def ui(foundry, tmp_path, webhook):
    variables = {"TEST_WEBHOOK": webhook.url, "INTERLEAVE_GROW_CRON": "* * * * *"}
    with dagster_ui(tmp_path / "home", tmp_path / "tiny.yaml", variables) as url:
        yield url


def test_a_daemon_evaluates_them_all_and_none_fails(foundry, ui, webhook):
    start_sensor(ui, "retrain_when_grown")
    # The sensor of failures begins with those after its first tick.
    wait_until(lambda: all(ticks(ui)[sensor] for sensor in SENSORS))

    backfill(ui, "plans", SHARDS)
    wait_until(
        lambda: (
            {run["partition"]: run["status"] for run in runs(ui)}.items()
            >= {SHARDS[0]: "SUCCESS", SHARDS[1]: "FAILURE"}.items()
        )
    )
    assert foundry.home.lake.partitions(PLANS) == SHARDS[:1], "a run for each shard"
    wait_until(lambda: webhook.lines)
    assert webhook.lines[0].startswith(f"plans[{SHARDS[1]}] failed: ")

    start_schedule(ui, "grow_bank")
    wait_until(lambda: SHARDS[0] in foundry.home.lake.partitions(SCORES))
    ticked = ticks(ui)
    assert any(tick["runIds"] for tick in ticked["grow_bank"])
    skipped = [tick["skipReason"] or "" for tick in ticked["retrain_when_grown"]]
    assert any("retrain_planner: 0 of 100000 rows changed; retrain_critic: " in s for s in skipped)
    assert not [tick["error"] for each in ticked.values() for tick in each if tick["error"]]
    assert len(webhook.lines) == 1
