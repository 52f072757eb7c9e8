"""Results on the page: their address, what follows them, their images, how long they take."""

import base64
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.inference.service.running_service import REDRAWN, blocked_roles, held_roles, wait_until
from tests.inference.service.studio.studio_page import (
    BROWSER,
    create,
    finished_story,
    open_studio,
    picture_texts,
    request_field,
)
from warehouse import Home

pytestmark = BROWSER

HOUSE = "A red house beside a tree"
ADDRESS = re.compile(r"#/generations/resp_\w+$")
IN_CLIPBOARD = """() => navigator.clipboard.read()
  .then(([item]) => item.getType("image/png")).then(createImageBitmap).then(({ width }) => width)"""


@pytest.fixture
def held(browser, tmp_path):
    """A page, and the barrier that holds the generator after two images."""
    home = Home(tmp_path)
    barrier, roles = held_roles(home)
    with open_studio(browser, home, roles) as page:
        yield page, barrier


def submit(page: Page, text: str) -> None:
    request_field(page).fill(text)
    request_field(page).press("Enter")


def follow_up(story: Locator, text: str) -> None:
    story.get_by_label("What next?").fill(text)
    story.get_by_label("What next?").press("Enter")


def test_a_reload_and_forward_join_what_is_running(held):
    page, barrier = held
    submit(page, REDRAWN)
    third = page.locator(".step").nth(2)
    expect(third.get_by_text("Drawing …")).to_be_visible()
    page.get_by_role("link", name="Step 2: A nose").click()
    expect(page.locator(".step").nth(1)).to_be_focused()
    expect(page).to_have_url(ADDRESS)
    page.reload()
    expect(third.get_by_text("Drawing …")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("button", name="Create", exact=True)).to_be_visible()
    expect(page.get_by_role("article")).to_have_count(0)
    page.go_forward()
    expect(third.get_by_text("Drawing …")).to_be_visible()
    assert not barrier.cancelled
    barrier.opened.set()
    story = finished_story(page)
    expect(story.get_by_text("Complete. 7 images drawn, 3 rejected.")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    assert len(picture_texts(story)) == 4


def test_who_joined_can_stop_it(held):
    page, barrier = held
    submit(page, REDRAWN)
    expect(page.locator(".step").nth(2).get_by_text("Drawing …")).to_be_visible()
    page.reload()
    page.get_by_role("button", name="Stop").click()
    expect(finished_story(page).get_by_text("Cancelled.")).to_be_visible()
    assert barrier.cancelled


def test_what_is_not_stored_is_cancelled_when_the_page_is_closed(held):
    page, barrier = held
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("Store the result").uncheck()
    submit(page, REDRAWN)
    expect(page.locator(".step").nth(2).get_by_text("Drawing …")).to_be_visible()
    page.get_by_role("link", name="History").click()
    expect(page.get_by_text("1 response", exact=True)).to_be_visible()
    page.get_by_role("link", name="Create").click()
    expect(page.locator(".step").nth(2).get_by_text("Drawing …")).to_be_visible()
    assert not barrier.cancelled
    page.reload()
    wait_until(lambda: barrier.cancelled)
    expect(page.get_by_role("article")).to_have_count(0)


def test_planning_shows_motion_and_time_and_the_queue_a_place(browser, tmp_path):
    home = Home(tmp_path)
    barrier, roles = blocked_roles(home)
    with open_studio(browser, home, roles, running=1) as page:
        submit(page, HOUSE)
        expect(page.locator(".state")).to_have_text("Planning …")
        expect(page.get_by_role("timer")).to_have_text(re.compile(r"^\d+ s$"))
        assert page.evaluate("document.getAnimations().length") > 0
        page.emulate_media(reduced_motion="reduce")
        assert page.evaluate("document.getAnimations().length") == 0
        page.get_by_role("link", name="Create").click()
        submit(page, "A cat on a meadow")
        expect(page.locator(".state")).to_have_text(re.compile("^Waiting: position 1 in"))
        expect(page.locator("#announcements")).to_have_text(re.compile("position 1"))
        barrier.opened.set()
        expect(finished_story(page).get_by_text(re.compile("^Complete"))).to_be_visible()


def test_a_follow_up_continues_from_the_last_image_and_links_back(page):
    """From a new result, and from one of the history."""
    story = create(page, HOUSE)
    story.get_by_role("button", name="Continue").click()
    message = "Describe in words what you want to see."
    expect(story.get_by_role("alert").first).to_have_text(message)
    first, text = page.url, "Draw a blue car beside the house"
    follow_up(story, text)
    expect(page.get_by_role("heading", name=text)).to_be_visible()
    story = finished_story(page)
    expect(story.get_by_role("img", name="Input image 1")).to_be_visible()
    expect(story.locator(".step").first.get_by_text("Step 1", exact=True)).to_be_visible()
    expect(story.get_by_text("<image>")).to_have_count(0)
    page.reload()
    story = finished_story(page)
    expect(story.get_by_role("heading", level=2)).to_have_text(text)
    expect(story.locator(".step").first.get_by_text("Step 1", exact=True)).to_be_visible()
    story.get_by_role("link", name=HOUSE).click()
    expect(page).to_have_url(first)
    follow_up(finished_story(page), "Draw a yellow sun above the house")
    expect(page.get_by_text("Follows:").get_by_role("link", name=HOUSE)).to_be_visible()
    finished_story(page)
    expect(page).not_to_have_url(first)
    page.go_back()
    expect(page).to_have_url(first)
    page.get_by_role("link", name="History", exact=True).click()
    entry = page.get_by_role("list", name="Responses").get_by_role("link").first
    expect(entry).to_have_text("Draw a yellow sun above the house")


def test_an_image_is_copied_saved_and_used_as_input(page, tmp_path):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    image = create(page, HOUSE).locator(".frame img").last
    data = base64.b64decode(image.get_attribute("src").partition(",")[2])
    image.click()
    dialog = page.get_by_role("dialog", name="Image")
    dialog.get_by_role("button", name="Copy").click()
    expect(dialog.get_by_text("Copied.")).to_be_visible()
    width = image.evaluate("image => image.naturalWidth")
    assert page.evaluate(IN_CLIPBOARD) == width
    with page.expect_download() as download:
        dialog.get_by_role("button", name="Save").click()
    assert re.fullmatch(r"step-\d+\.png", download.value.suggested_filename)
    download.value.save_as(tmp_path / "saved.png")
    assert (tmp_path / "saved.png").read_bytes() == data
    dialog.get_by_role("button", name="Use as input").click()
    uploads = page.locator("#uploads").get_by_role("img")
    assert uploads.get_attribute("src") == image.get_attribute("src")
    expect(request_field(page)).to_be_focused()


def test_what_is_not_drawn_is_named_and_a_long_request_is_cut(page):
    story = create(page, "A red house beside a zeppelin")
    last = story.locator(".step:has(.frame)").last
    expect(last.get_by_text("Not drawn: zeppelin.")).to_be_visible()
    text = "Draw a red house beside a tree, " + "and a cat on the meadow, " * 20 + "at last."
    story = create(page, text)
    heading = story.get_by_role("heading", level=2)
    expect(heading).to_have_text(re.compile(r"^Draw a red house .{80,140} …$"))
    expect(story.get_by_text(text)).to_be_hidden()
    story.get_by_text("Show the whole request").click()
    expect(story.get_by_text(text)).to_be_visible()
