"""The Dagster UI as a person uses it: look at the lineage, backfill, materialize, read metadata."""

import textwrap

import pytest
from playwright.sync_api import Page, expect

from assets.core.node import NODES
from dagster_project.definitions import CHECKS
from tests.helpers.automation import runs
from tests.helpers.browser import (
    CHROMIUM,
    TIMEOUT_SECONDS,
    chromium,
    dagster_ui,
    interleave,
    lineage_path,
    node_in_lineage,
    wait_for_runs,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`"),
]
PROFILE = """
    name: tiny
    description: Two shards of a few prompts, small pictures
    roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
    pack: sketchbook
    sizes: {demo: 2}
    bank: {shard_size: 12}
    sketch: {picture_size: 96}
"""
BANK = "taxonomy,vocabulary,templates,prompts,prompt_audit"
SHARDS = ["sketchbook-0000", "sketchbook-0001"]
AGGREGATES = [node.name for node in NODES.values() if node.automatic]

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)


@pytest.fixture(scope="module")
def ui(tmp_path_factory):
    """The UI on a lake that has an audited bank of two shards and no trajectories yet."""
    folder = tmp_path_factory.mktemp("ui")
    home, profile = folder / "home", folder / "tiny.yaml"
    profile.write_text(textwrap.dedent(PROFILE))
    interleave("run", home, profile, "--select", BANK)
    with dagster_ui(home, profile) as url:
        yield url


@pytest.fixture
def page():
    with chromium(2400, 2800) as page:  # room for the whole lineage
        yield page


def test_the_lineage_shows_every_asset(ui, page):
    page.goto(ui + lineage_path(sorted({node.group for node in NODES.values()})))
    for name in NODES:
        expect(node_in_lineage(page, name)).to_be_visible()


def test_a_backfill_of_all_shards_is_followed_by_the_training_sets(ui, page):
    page.goto(f"{ui}/locations/interleave/asset-groups/trajectories/lineage")
    page.get_by_role("button", name="Materialize all").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="All", exact=True).click()
    expect(dialog.get_by_text("2 partitions", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Launch").click()

    partitions = wait_for_runs(ui, lambda partitions: bool(partitions["exports"]))
    for asset in ("plans", "trajectories", "scores"):
        assert set(partitions[asset]) == set(SHARDS)
    assert {run["partition"] for run in runs(ui)} == {*SHARDS, None}, "a run for each shard"
    for aggregate in AGGREGATES:
        assert partitions[aggregate] == [None], f"{aggregate} runs once, after both shards"
        expect_checks_pass(page, ui, aggregate)


def expect_checks_pass(page: Page, url: str, asset: str) -> None:
    specs = [spec for checks in CHECKS for spec in checks.check_specs]
    blocking = [spec.blocking for spec in specs if spec.asset_key.path[-1] == asset]
    if not blocking:
        return
    page.goto(f"{url}/assets/{asset}?view=checks")
    if all(blocking):
        expect(page.get_by_text("This is a blocking asset check")).to_be_visible()
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(len(blocking))
    # A check can be executed again without its asset.
    expect(page.get_by_role("button", name="Execute all")).to_be_enabled()


def test_clicking_materialize_makes_the_prompts_and_shows_what_they_are(ui, page):
    before = len(runs(ui))
    page.goto(f"{ui}/assets/prompts")
    page.get_by_role("button", name="Materialize").first.click()
    wait_for_runs(ui, lambda _: len(runs(ui)) > before)
    page.goto(f"{ui}/assets/prompts")
    expect(page.get_by_text("Row count")).to_be_visible()
    rows = page.get_by_role("row").filter(has=page.get_by_text("rows/prompts", exact=True))
    expect(rows).to_contain_text("24")
    page.get_by_text("Show Markdown").first.click()
    picture = page.get_by_role("dialog").locator("img").first
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 500


def test_the_schedule_is_switched_on_and_its_tick_runs_the_next_shard(ui, page):
    page.goto(f"{ui}/locations/interleave/schedules/grow_bank")
    switch = page.get_by_role("checkbox")
    switch.locator("xpath=..").click()
    expect(switch).to_be_checked()

    page.get_by_role("button", name="Preview tick result").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_text("1 run requests")).to_be_visible()
    dialog.get_by_role("button", name="Launch all").click()
    wait_for_runs(ui, lambda partitions: "sketchbook-0002" in partitions["scores"])
