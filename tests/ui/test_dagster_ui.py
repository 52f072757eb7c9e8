"""The Dagster UI as a person uses it: look at the lineage, materialize, read the metadata, backfill
all shards, which the training sets follow by themselves, switch on a schedule."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from assets.core.node import NODES
from dagster_project.run import run_lineage
from dagster_project.stages import CHECKS
from tests.dagster_project.conftest import opened, tiny_foundry
from tests.helpers.automation import runs
from tests.helpers.browser import (
    CHROMIUM,
    TIMEOUT_SECONDS,
    chromium,
    dagster_ui,
    lineage_path,
    materialized_partitions,
    node_in_lineage,
    wait_for_runs,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`"),
]

MADE = ["taxonomy", "vocabulary_expansion", "vocabulary", "templates"]
SHARDS = ["sketchbook-0000", "sketchbook-0001"]
LINEAGE = "/locations/interleave/asset-groups/trajectories/lineage"
expect.set_options(timeout=TIMEOUT_SECONDS * 1000)


@pytest.fixture(scope="module")
def ui(tmp_path_factory):
    """The UI on a lake for two small shards, whose taxonomy and templates are made."""
    sizes = {"sizes": {"demo": 2}, "bank": {"shard_size": 12}}
    foundry = tiny_foundry(tmp_path_factory.mktemp("ui"), **sizes)
    with opened(foundry) as instance:
        run_lineage(foundry, instance, 2, MADE)
    with dagster_ui(Path(foundry.root), Path(foundry.profile)) as url:
        yield url


@pytest.fixture
def page():
    with chromium(2400, 3600) as page:  # room for the whole lineage
        yield page


def materialize(page: Page, url: str, asset: str) -> None:
    """Open an asset's page, press its button, and wait for the run to end well."""
    page.goto(f"{url}/assets/{asset}")
    page.get_by_role("button", name="Materialize").first.click()
    expect(page.get_by_text("Never materialized")).to_be_hidden()
    page.goto(f"{url}/runs")
    expect(page.get_by_text("Success", exact=True).nth(1)).to_be_visible()


def metadata_row(page: Page, key: str):
    return page.get_by_role("row").filter(has=page.get_by_text(key, exact=True))


def test_the_lineage_shows_every_asset(ui, page):
    page.goto(ui + lineage_path(sorted({node.group for node in NODES.values()})))
    for name in NODES:
        expect(node_in_lineage(page, name)).to_be_visible()


def test_clicking_materialize_makes_the_prompts_and_shows_what_they_are(ui, page):
    materialize(page, ui, "prompts")
    page.goto(f"{ui}/assets/prompts")
    expect(page.get_by_text("Row count")).to_be_visible()
    expect(metadata_row(page, "rows/prompts")).to_contain_text("24")
    page.get_by_text("Show Markdown").first.click()
    picture = page.get_by_role("dialog").locator("img").first
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 500


def test_a_backfill_of_all_shards_is_followed_by_the_training_sets(ui, page):
    page.goto(ui + LINEAGE)
    page.get_by_role("button", name="Materialize all").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="All", exact=True).click()
    expect(dialog.get_by_text("2 partitions", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Launch").click()

    partitions = wait_for_runs(ui, lambda partitions: bool(partitions["exports"]))
    for asset in ("plans", "trajectories", "scores"):
        assert set(partitions[asset]) == set(SHARDS)
    assert {run["partition"] for run in runs(ui)} == {*SHARDS, None}, "a run for each shard"
    for aggregate, checks in _checks_of_aggregates().items():
        assert partitions[aggregate] == [None], f"{aggregate} runs once, after both shards"
        _expect_checks_pass(page, ui, aggregate, checks)


def _checks_of_aggregates() -> dict[str, list[bool]]:
    """Aggregate -> of each of its checks, whether it is blocking."""
    specs = [spec for checks in CHECKS for spec in checks.check_specs]
    return {
        node.name: [spec.blocking for spec in specs if spec.asset_key.path[-1] == node.name]
        for node in NODES.values()
        if node.automatic
    }


def _expect_checks_pass(page: Page, url: str, asset: str, checks: list[bool]) -> None:
    if not checks:
        return
    page.goto(f"{url}/assets/{asset}?view=checks")
    if all(checks):
        expect(page.get_by_text("This is a blocking asset check")).to_be_visible()
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(len(checks))
    # A check can be executed again without its asset.
    expect(page.get_by_role("button", name="Execute all")).to_be_enabled()


def test_a_schedules_tick_is_previewed_and_grows_the_bank(ui, page):
    """What follows a tick by itself: `tests/dagster_project/test_daemon.py`."""
    banks = materialized_partitions(ui)[0]["prompts"]
    page.goto(f"{ui}/locations/interleave/schedules/grow_bank")
    switch = page.get_by_role("checkbox")
    switch.locator("xpath=..").click()
    expect(switch).to_be_checked()

    page.get_by_role("button", name="Preview tick result").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_text("1 run requests")).to_be_visible()
    dialog.get_by_role("button", name="Launch all").click()
    wait_for_runs(ui, lambda partitions: len(partitions["prompts"]) > len(banks))
