"""Shards told from the UI: a backfill that the training sets follow, and the nightly schedule."""

import time
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.helpers.browser import CHROMIUM, TIMEOUT_SECONDS, chromium, query_graphql, tiny_ui

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`"),
]
SHARDS = ["sketchbook-0000", "sketchbook-0001"]
PLACE = "/locations/interleave"
STATE = """{
  assetNodes { assetKey { path } assetMaterializations { partition } }
  runsOrError { ... on Runs { results { runId status } } }
}"""
Made = dict[str, list[str | None]]
expect.set_options(timeout=TIMEOUT_SECONDS * 1000)


@pytest.fixture(scope="module")
def ui(tmp_path_factory):
    """The UI on a lake that has a bank of two shards and nothing told yet."""
    folder = tmp_path_factory.mktemp("automation")
    with tiny_ui(folder, assets="taxonomy,vocabulary,templates,prompts") as url:
        yield url


@pytest.fixture
def page():
    with chromium() as page:
        yield page


def made(url: str) -> tuple[Made, set[str]]:
    """The partitions of every asset's materializations, and the states of all runs."""
    state = query_graphql(url, STATE)
    assets = {
        node["assetKey"]["path"][0]: [m["partition"] for m in node["assetMaterializations"]]
        for node in state["assetNodes"]
    }
    return assets, {run["status"] for run in state["runsOrError"]["results"]}


def wait_until(url: str, there: Callable[[Made], bool]) -> Made:
    """Wait for materializations, and for the runs that make them to end well."""
    deadline = time.monotonic() + 2 * TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        assets, runs = made(url)
        assert not runs & {"FAILURE", "CANCELED"}, f"a run failed; so far: {assets}"
        if there(assets) and runs == {"SUCCESS"}:
            return assets
        time.sleep(1)
    raise AssertionError(f"not there in time: {assets}")


def test_a_backfill_of_all_shards_is_followed_by_the_training_sets(ui, page):
    page.goto(f"{ui}{PLACE}/asset-groups/trajectories/lineage")
    page.get_by_role("button", name="Materialize all").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="All", exact=True).click()
    expect(dialog.get_by_text("2 partitions", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Launch").click()

    assets = wait_until(ui, lambda assets: bool(assets["exports"]))
    for told in ("plans", "trajectories", "scores"):
        assert set(assets[told]) == set(SHARDS)
    for followed, checks in _checks_of_aggregates().items():
        assert assets[followed] == [None], f"{followed} should be made once, after both shards"
        _see_checks_pass(page, ui, followed, checks)


def _checks_of_aggregates() -> dict[str, int]:
    """Aggregate -> number of its checks, all of them blocking."""
    from assets.core.node import NODES
    from dagster_project.definitions import CHECKS

    names = [key.asset_key.path[-1] for checks in CHECKS for key in checks.check_keys]
    return {node.name: names.count(node.name) for node in NODES.values() if node.automatic}


def _see_checks_pass(page: Page, url: str, asset: str, checks: int) -> None:
    if not checks:
        return
    page.goto(f"{url}/assets/{asset}?view=checks")
    expect(page.get_by_text("This is a blocking asset check")).to_be_visible()
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(checks)
    # A check can be executed again without its asset.
    expect(page.get_by_role("button", name="Execute all")).to_be_enabled()


def test_the_schedule_is_switched_on_and_its_tick_tells_the_next_shard(ui, page):
    told = made(ui)[0]["scores"]
    shard = f"sketchbook-{len(set(told)):04d}"
    page.goto(f"{ui}{PLACE}/schedules/grow_bank")
    switch = page.get_by_role("checkbox")
    switch.locator("xpath=..").click()
    expect(switch).to_be_checked()

    page.get_by_role("button", name="Preview tick result").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_text("1 run requests")).to_be_visible()
    dialog.get_by_role("button", name="Launch all").click()
    wait_until(ui, lambda assets: assets["scores"].count(shard) > told.count(shard))
