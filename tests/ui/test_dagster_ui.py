"""The Dagster UI as a person uses it: look at the lineage, materialize, read the metadata."""

import pytest
from playwright.sync_api import Page, expect

from tests.helpers.browser import (
    CHROMIUM,
    TIMEOUT_SECONDS,
    chromium,
    lineage_path,
    materialized_partitions,
    node_in_lineage,
    tiny_ui,
    wait_for_runs,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`"),
]

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)


@pytest.fixture(scope="module")
def ui(tmp_path_factory):
    """The UI on a lake whose taxonomy the command line made before."""
    folder = tmp_path_factory.mktemp("ui")
    with tiny_ui(folder, assets="taxonomy,vocabulary_expansion,vocabulary,templates") as url:
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
    from assets.core.node import NODES
    from dagster_project import definitions  # noqa: F401, declares the nodes

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


def test_the_schedule_is_switched_on_and_its_tick_runs_the_next_shard(ui, page):
    shards = materialized_partitions(ui)[0]["scores"]
    shard = f"sketchbook-{len(set(shards)):04d}"
    page.goto(f"{ui}/locations/interleave/schedules/grow_bank")
    switch = page.get_by_role("checkbox")
    switch.locator("xpath=..").click()
    expect(switch).to_be_checked()

    page.get_by_role("button", name="Preview tick result").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_text("1 run requests")).to_be_visible()
    dialog.get_by_role("button", name="Launch all").click()
    wait_for_runs(ui, lambda partitions: partitions["scores"].count(shard) > shards.count(shard))
