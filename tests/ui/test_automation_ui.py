"""A backfill of all shards from the UI, which the training sets follow by themselves."""

import pytest
from playwright.sync_api import Page, expect

from tests.helpers.automation import runs
from tests.helpers.browser import CHROMIUM, TIMEOUT_SECONDS, chromium, tiny_ui, wait_for_runs

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`"),
]
SHARDS = ["sketchbook-0000", "sketchbook-0001"]
LINEAGE = "/locations/interleave/asset-groups/trajectories/lineage"
expect.set_options(timeout=TIMEOUT_SECONDS * 1000)


@pytest.fixture
def ui(tmp_path):
    """The UI on a lake that has an audited bank of two shards and no trajectories yet."""
    with tiny_ui(tmp_path, assets="taxonomy,vocabulary,templates,prompts,prompt_audit") as url:
        yield url


@pytest.fixture
def page():
    with chromium() as page:
        yield page


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
    from assets.core.node import NODES
    from dagster_project.definitions import CHECKS

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
