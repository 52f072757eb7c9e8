"""Reviews in the studio: what is left to review, what is stored, and by which keys."""

import threading

import httpx
import pytest
from playwright.sync_api import expect

from inference.review_log import current_reviews, restore_reviews
from interleave_foundry import query
from schemas.trajectories import ATTEMPTS, REVIEWS
from tests.assets.curation.curated_world import World
from tests.inference.service.running_service import error_of, running_service
from tests.inference.service.studio.studio_page import (
    BROWSER,
    assert_readable,
    is_wider_than_screen,
    open_page,
)
from warehouse import Home

SHARD = "toy-0000"
PATH = "/studio/reviews"


def lake(folder) -> Home:
    """One shard of two stories: four attempts, one of them the redraw of another."""
    world = World(Home(str(folder)), image_size=96)
    world.add("a", [(2, False), (9, True)], [(9, True)], text="<b>A red house</b>")
    world.add("b", [(4, True)])
    return world.write()


@pytest.fixture
def home(tmp_path):
    return lake(tmp_path)


@pytest.fixture
def service(home):
    with running_service(home) as service:
        yield service


def pending(service, reviewer="ann", **more):
    return service.get(f"{PATH}/{SHARD}", params={"reviewer": reviewer, **more}).json()


def answer(service, item, reviewer="ann", **more):
    fields = ("shard", "trajectory_id", "step_number", "iteration", "image")
    body = {name: item[name] for name in fields} | {"reviewer": reviewer} | more
    return service.post(PATH, json=body)


def verdict(service, item, agrees=True, reviewer="ann"):
    return answer(service, item, reviewer, kind="verdict", agrees=agrees)


def test_the_queue_has_attempts_with_the_image_before(service, home):
    page = pending(service)
    assert (page["remaining"], page["after"], len(page["items"])) == (4, None, 4)
    first, second, third, _ = page["items"]
    assert first["request"] == "<b>A red house</b>" and first["instruction"] == "do 1"
    assert (first["before"], first["accepted"], first["refined_prompt"]) == (None, False, "try 1.1")
    assert first["earlier"] is None
    assert second["earlier"]["image"] == first["image"]
    assert third["before"] == second["image"] and third["earlier"] is None
    for sha256 in (first["image"], third["before"]):
        picture = service.get(f"{PATH}/{SHARD}/pictures/{sha256}")
        assert picture.headers["content-type"] == "image/png"


def test_a_verdict_is_a_row_and_leaves_the_reviewers_queue(service, home):
    items = pending(service)["items"]
    assert verdict(service, items[0], agrees=False).status_code == 200
    (row,) = home.lake.read(REVIEWS, [SHARD]).to_pylist()
    said = ("reviewer", "kind", "agrees", "accepted")
    assert [row[name] for name in said] == ["ann", "verdict", False, True]
    judged = (row["critic"], row["critic_accepted"], row["image"])
    assert judged == ("eye", False, items[0]["image"])
    assert query("select count(*) from reviews", home).iat[0, 0] == 1
    assert pending(service)["remaining"] == 3 and pending(service, "bob")["remaining"] == 4
    (shard,) = service.get(PATH, params={"reviewer": "bob"}).json()["shards"]
    assert shard == {"shard": SHARD, "attempts": 4, "reviewed": 1, "own": 0}


def test_preferences_and_prompts_are_rows_too(service, home):
    item = pending(service)["items"][1]
    assert answer(service, item, kind="preference", better="this").status_code == 200
    assert answer(service, item, kind="prompt", prompt=" a red house ").status_code == 200
    preference, prompt = home.lake.read(REVIEWS, [SHARD]).to_pylist()
    compared = ("iteration", "other_iteration", "better_iteration")
    assert [preference[name] for name in compared] == [0, 1, 1]
    assert preference["other_image"] == item["image"] == prompt["image"]
    assert prompt["prompt"] == "a red house"
    assert pending(service)["remaining"] == 4, "only verdicts leave the queue"


def test_the_last_review_counts_and_can_be_taken_back(service, home):
    item = pending(service)["items"][0]
    first = verdict(service, item, agrees=True).json()
    last = verdict(service, item, agrees=False).json()
    (current,) = current_reviews(home, SHARD).to_pylist()
    assert current["agrees"] is False
    replaced = f"{service.url}{PATH}/{SHARD}/{first['review_id']}"
    where = f"{service.url}{PATH}/{SHARD}/{last['review_id']}"

    error_of(httpx.delete(replaced, params={"reviewer": "ann"}), 404)
    error_of(httpx.delete(where, params={"reviewer": "bob"}), 404)
    assert httpx.delete(where, params={"reviewer": "ann"}).status_code == 200
    assert current_reviews(home, SHARD).num_rows == 0
    assert home.lake.rows(REVIEWS, SHARD) == 3, "rows are only added"
    assert pending(service)["remaining"] == 4


def test_other_answers_are_refused_and_stored_nowhere(service, home):
    item, verdict = pending(service)["items"][0], {"kind": "verdict", "agrees": True}
    for change, status in [
        ({"kind": "verdict"}, 400),
        ({"kind": "preference"}, 400),
        ({"kind": "preference", "better": "this"}, 400),
        ({"kind": "prompt", "prompt": "  "}, 400),
        (verdict | {"iteration": 7}, 404),
        (verdict | {"shard": "nothing"}, 404),
        (verdict | {"shard": "../up"}, 400),
        (verdict | {"shard": "_requests-2026"}, 400),
        (verdict | {"image": "0" * 64}, 409),
        (verdict | {"reviewer": "  "}, 400),
        (verdict | {"colour": "red"}, 400),
    ]:
        error_of(answer(service, item, **change), status)
    # A browser sends other types than JSON for a page of another site without asking first.
    error_of(service.post(PATH, content=b"{}", headers={"content-type": "text/plain"}), 400)
    assert home.lake.partitions(REVIEWS) == []


def test_reviews_of_an_image_that_was_drawn_again_do_not_count(service, home):
    items = pending(service)["items"]
    verdict(service, items[0])
    rows = home.lake.read(ATTEMPTS, [SHARD]).to_pylist()
    rows[0]["image"] = items[2]["image"]
    home.lake.write(ATTEMPTS, [ATTEMPTS.row.model_validate(row) for row in rows], SHARD)
    assert pending(service)["remaining"] == 4


def test_several_pages_of_a_queue(tmp_path):
    world = World(Home(str(tmp_path)))
    for number in range(30):
        world.add(f"s{number:02}", [(9, True)])
    with running_service(world.write()) as service:
        first = pending(service)
        assert (len(first["items"]), first["remaining"]) == (20, 30)
        second = pending(service, after=first["after"])
        assert (len(second["items"]), second["after"], second["remaining"]) == (10, None, 10)
        assert service.get(f"{PATH}/{SHARD}?reviewer=ann&after=x").status_code == 400
        assert service.get(f"{PATH}/other-0000?reviewer=ann").status_code == 404


def test_reviews_that_come_at_the_same_time_are_all_stored(service, home):
    items = pending(service)["items"]
    names = [f"p{number}" for number in range(8)]
    threads = [
        threading.Thread(target=verdict, args=(service, item, True, name))
        for item in items
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert current_reviews(home, SHARD).num_rows == len(threads) == 32


def test_what_was_journaled_before_a_kill_is_in_the_table_afterwards(home):
    with running_service(home) as service:
        verdict(service, pending(service)["items"][0])
    stored = home.lake.read(REVIEWS, [SHARD])
    home.lake.delete(REVIEWS, SHARD)
    with running_service(home) as service:
        assert pending(service)["remaining"] == 3
    assert home.lake.read(REVIEWS, [SHARD]).equals(stored)
    home.lake.delete(REVIEWS, SHARD)
    assert restore_reviews(home) == {SHARD: 1}


def test_users_requests_are_not_shown(tmp_path):
    world = World(Home(str(tmp_path)))
    world.add("a", [(9, True)], shard="requests-0000")
    home = world.write()
    (row, *_) = home.lake.read(ATTEMPTS, ["requests-0000"]).to_pylist()
    with running_service(home) as service:
        assert service.get(PATH).json()["shards"] == []
        error_of(service.get(f"{PATH}/requests-0000?reviewer=ann"), 404)
        for owner in (f"{PATH}/requests-0000", f"{PATH}/{SHARD}", "/studio"):
            error_of(service.get(f"{owner}/pictures/{row['image']}"), 404)


def test_a_home_without_attempts_is_empty(tmp_path):
    with running_service(Home(str(tmp_path))) as service:
        assert service.get(PATH).json() == {"shards": [], "next_offset": None}


class TestPage:
    pytestmark = BROWSER

    def test_attempts_are_reviewed_by_keyboard(self, browser, service, home):
        with open_page(browser, service.url) as page:
            page.get_by_role("link", name="Review").click()
            page.get_by_label("Your name").fill("ann")
            page.get_by_label("Your name").press("Tab")
            page.get_by_role("link", name=SHARD).click()
            heading = page.get_by_role("heading", level=2).filter(has_text="attempt")
            expect(heading).to_have_text("Step 1: Part 1, attempt 1")
            expect(heading).to_be_focused()
            expect(page.get_by_text("<b>A red house</b>")).to_be_visible()
            expect(page.get_by_role("button", name="Second is better")).to_be_disabled()
            assert_readable(page)
            page.keyboard.press("d")
            expect(heading).to_have_text("Step 1: Part 1, attempt 2")
            expect(page.get_by_role("img", name="Picture of the attempt before")).to_be_visible()
            page.keyboard.press("2")
            expect(page.get_by_text("This attempt is better.").last).to_be_visible()
            page.keyboard.press("p")
            field = page.get_by_label("A better prompt")
            expect(field).to_be_focused()
            field.fill("a house, all red")  # its letters are no answers
            page.get_by_role("button", name="Store the prompt").press("Enter")
            expect(field).to_be_hidden()
            page.keyboard.press("a")
            expect(heading).to_have_text("Step 2: Part 2, attempt 1")
            page.keyboard.press("u")
            expect(heading).to_have_text("Step 1: Part 1, attempt 2")
            page.keyboard.press("s")
            expect(heading).to_have_text("Step 2: Part 2, attempt 1")
            page.set_viewport_size({"width": 360, "height": 700})
            assert not is_wider_than_screen(page)
            page.get_by_role("link", name="All shards").click()
            expect(page.get_by_role("cell", name="1 (25 %)")).to_be_visible()
            page.keyboard.press("a")  # nothing is open
        rows = current_reviews(home, SHARD).to_pylist()
        assert sorted((row["kind"], row["iteration"]) for row in rows) == [
            ("preference", 0),
            ("prompt", 1),
            ("verdict", 0),
        ]

    def test_shortcuts_can_be_switched_off_and_names_are_remembered(self, browser, service, home):
        with open_page(browser, service.url) as page:
            page.goto(f"{service.url}/#/review/{SHARD}")
            expect(page.get_by_text("Give your name first")).to_be_visible()
            page.get_by_label("Your name").fill("bob")
            page.get_by_label("Your name").press("Tab")
            heading = page.get_by_role("heading", level=2).filter(has_text="attempt")
            expect(heading).to_be_visible()
            page.get_by_label("Keyboard shortcuts").uncheck()
            page.keyboard.press("a")
            page.get_by_role("button", name="Skip").click()
            expect(heading).to_have_text("Step 1: Part 1, attempt 2")
            assert home.lake.partitions(REVIEWS) == []
            page.reload()
            expect(page.get_by_label("Your name")).to_have_value("bob")
            expect(page.get_by_label("Keyboard shortcuts")).not_to_be_checked()
            for left in ("4 attempts", "3 attempts", "2 attempts", "1 attempt"):
                expect(page.get_by_text(f"{left} left in {SHARD}.")).to_be_visible()
                page.get_by_role("button", name="Agree A", exact=True).click()
            expect(page.get_by_role("status").get_by_text("Nothing is left").last).to_be_visible()
        assert current_reviews(home, SHARD).num_rows == 4
