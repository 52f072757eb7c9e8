"""Branches in the studio: the trees of the home, and the drawing of one."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from playwright.sync_api import expect

from assets.trajectories.branches import Change, play_branch
from schemas.trajectories import ATTEMPTS
from tests.assets.evaluation.sample_lake import SHARD
from tests.inference.service.running_service import error_of, running_service
from tests.inference.service.studio.studio_page import BROWSER, assert_readable, open_page
from warehouse import Home

PATH = "/studio/branches"


def play(foundry, parent_id, change):
    """A branch's row; in a thread, as the browser's event loop runs in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(play_branch, foundry, parent_id, change).result().row


@pytest.fixture
def rejected(recorded_foundry):
    """A rejected first attempt of a second step."""
    rows = recorded_foundry.rows(ATTEMPTS, SHARD)
    return next(r for r in rows if (r.step_number, r.iteration, r.accepted) == (2, 0, False))


@pytest.fixture
def branches(recorded_foundry, rejected):
    """A branch of a trajectory, and a branch of that one at an attempt before it."""
    at = (rejected.step_number, rejected.iteration)
    outer = play(recorded_foundry, rejected.trajectory_id, Change(*at, accept=True))
    inner = play(recorded_foundry, outer.branch_id, Change(1, 0, seed=7))
    return outer, inner


@pytest.fixture
def service(recorded_foundry):
    with running_service(recorded_foundry.home) as service:
        yield service


def test_a_tree_has_the_record_and_its_branches_from_where_they_leave(service, branches, rejected):
    outer, inner = branches
    page = service.get(PATH).json()
    [tree] = page["trees"]
    assert (page["total"], page["next_offset"], tree["shard"]) == (1, None, SHARD)
    paths = tree["paths"]
    parents = [(path["id"], path["parent_id"]) for path in paths]
    root = rejected.trajectory_id
    assert parents == [(root, None), (outer.branch_id, root), (inner.branch_id, outer.branch_id)]
    record, accepted, reseeded = paths
    before = accepted["first"]
    assert (record["first"], reseeded["first"]) == (0, 0) and before > 0
    shown = ("step_number", "iteration", "image")
    for mine, own in zip(record["attempts"][: before + 1], accepted["attempts"], strict=False):
        assert [mine[name] for name in shown] == [own[name] for name in shown]
    left = accepted["attempts"][before]
    assert left["accepted"] and (left["step_number"], left["iteration"]) == (2, 0)
    assert "accepted" in accepted["summary"] and "seed 7" in reseeded["summary"]
    for path in paths:
        image = service.get(f"/studio/reviews/{SHARD}/pictures/{path['attempts'][-1]['image']}")
        assert image.headers["content-type"] == "image/png"


def test_pages(recorded_foundry, monkeypatch):
    monkeypatch.setattr("inference.service.studio.branches._TREES_PER_PAGE", 1)
    first = {row.trajectory_id: row for row in reversed(recorded_foundry.rows(ATTEMPTS, SHARD))}
    for row in list(first.values())[:2]:
        play(recorded_foundry, row.trajectory_id, Change(row.step_number, 0, accept=True))
    with running_service(recorded_foundry.home) as service:
        pages = [service.get(PATH, params={"offset": offset}).json() for offset in (0, 1)]
        error_of(service.get(PATH, params={"offset": -1}), 400)
    assert [(page["total"], page["next_offset"]) for page in pages] == [(2, 1), (2, None)]
    assert len({page["trees"][0]["trajectory_id"] for page in pages}) == 2


def test_a_home_without_branches(tmp_path):
    with running_service(Home(str(tmp_path))) as service:
        assert service.get(PATH).json() == {"trees": [], "total": 0, "next_offset": None}


class TestPage:
    pytestmark = BROWSER

    def test_it_draws_the_tree(self, browser, service, branches):
        outer, _ = branches
        with open_page(browser, service.url) as page:
            page.get_by_role("link", name="Review").click()
            page.get_by_role("link", name="Branches").click()
            expect(page.get_by_text("1 trajectory with branches.")).to_be_visible()
            expect(page.get_by_text(outer.summary)).to_be_visible()
            pictures = page.get_by_role("img", name="Step 2, iteration 0:")
            rejected, accepted = (
                pictures.and_(page.get_by_alt_text(re.compile(f": {verdict}")))
                for verdict in ("rejected", "accepted")
            )
            above, below = rejected.first.bounding_box(), accepted.first.bounding_box()
            assert above["x"] == below["x"] and above["y"] < below["y"]
            assert accepted.first.evaluate("i => i.decode().then(() => i.naturalWidth)") > 0
            assert page.locator(".leaves").count() == 2
            assert_readable(page)
            accepted.first.click()
            expect(page.get_by_role("dialog", name="Image")).to_be_visible()
            page.keyboard.press("Escape")
            page.set_viewport_size({"width": 360, "height": 700})
            assert_readable(page)
