"""Accessibility of the studio (phone, keyboard, contrast), and API keys."""

import re

from playwright.sync_api import Locator, expect

from tests.inference.service.running_service import REDRAWN
from tests.inference.service.studio.studio_page import (
    BROWSER,
    FAINT_TEXTS,
    create,
    finished_story,
    is_wider_than_screen,
    open_page,
    open_studio,
    picture_texts,
    request_field,
    unfold_all,
)
from warehouse import Home

pytestmark = BROWSER

PHONE = (360, 740)
LONG_WORD = "Draw a house " + "x" * 400


def test_nothing_is_wider_than_a_phone(browser, studio):
    with open_page(browser, studio, *PHONE) as page:
        links = page.get_by_role("navigation", name="Views").get_by_role("link").all()
        boxes = [link.bounding_box() for link in links]
        assert len({box["y"] for box in boxes}) == 1 and all(box["height"] < 40 for box in boxes)
        assert boxes[-1]["x"] + boxes[-1]["width"] <= 360
        unfold_all(page)
        page.get_by_label("Compare two settings").check()
        assert not is_wider_than_screen(page)
        page.get_by_label("Compare two settings").uncheck()
        create(page, LONG_WORD)
        page.get_by_text("Show the whole request").click()
        assert not is_wider_than_screen(page)
        create(page, REDRAWN).locator(".frame img").last.click()
        assert page.get_by_role("dialog").bounding_box()["width"] <= 360
        expect(page.get_by_role("button", name="Close")).to_be_in_viewport()
        page.keyboard.press("Escape")
        unfold_all(page)
        assert not is_wider_than_screen(page)
        page.get_by_role("link", name="History").click()
        expect(page.get_by_role("link", name="Draw a house …")).to_be_visible()
        story = page.get_by_role("list", name="Responses").get_by_role("link", name=REDRAWN).first
        expect(story).to_be_visible()
        assert not is_wider_than_screen(page)
        story.click()
        finished_story(page)
        unfold_all(page)
        assert not is_wider_than_screen(page)


def test_everything_works_by_keyboard(page):
    def go_to(element: Locator) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if element.evaluate("element => element === document.activeElement"):
                outline = element.evaluate("element => getComputedStyle(element).outlineStyle")
                assert outline == "solid", "the focus has no outline"
                return
        raise AssertionError(f"{element} cannot be focused by Tab")

    go_to(page.get_by_role("link", name="Skip to the content"))
    go_to(page.get_by_role("link", name="History"))
    go_to(request_field(page))
    page.keyboard.type(REDRAWN)
    page.keyboard.press("Enter")
    story = finished_story(page)
    go_to(page.locator("#settings > summary"))
    page.keyboard.press("Enter")
    expect(page.get_by_label("Maximum attempts per step").first).to_be_visible()
    page.keyboard.press("Enter")
    go_to(story.get_by_role("link", name="Step 3"))
    page.keyboard.press("Enter")
    go_to(story.locator(".step").nth(2).locator(".rejected > summary"))
    page.keyboard.press("Space")
    expect(story.get_by_text("The step failed.").first).to_be_visible()
    go_to(story.get_by_role("button", name="HTML page"))
    with page.expect_download():
        page.keyboard.press("Enter")


def test_every_text_has_enough_contrast(page):
    def check() -> None:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(FAINT_TEXTS) == [], scheme

    unfold_all(page)
    check()
    create(page, REDRAWN)
    unfold_all(page)
    check()
    create(page, "hello")
    check()


def test_a_key_is_requested_where_it_is_required(browser, tmp_path):
    with open_studio(browser, Home(tmp_path), keys=("sesame",)) as page:
        dialog = page.get_by_role("dialog")
        key = dialog.get_by_label("API key")
        request_field(page).fill(REDRAWN)
        request_field(page).press("Enter")
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(finished_story(page)).to_contain_text("The request failed.")
        expect(page.get_by_role("button", name="Create", exact=True)).to_be_visible()
        request_field(page).press("Enter")
        key.fill("guessed")
        page.keyboard.press("Enter")
        expect(dialog.get_by_text("This key isn't valid.")).to_be_visible()
        key.fill("sesame")
        page.keyboard.press("Enter")
        assert len(picture_texts(finished_story(page))) == 4
        page.get_by_role("link", name="History").click()
        cover = page.get_by_role("list", name="Responses").locator("img")
        expect(cover).to_have_attribute("src", re.compile("^data:image/png"))
        expect(dialog).to_be_hidden()
        assert page.evaluate("localStorage.length") == 1  # set by the test's browser for Dagster
        assert page.evaluate("Object.values(sessionStorage)") == ["sesame"]
