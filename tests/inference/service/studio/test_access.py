"""Accessibility of the studio (phone, keyboard, contrast), and API keys."""

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.helpers.browser import interleave_serve
from tests.inference.service.running_service import running_service
from tests.inference.service.studio.studio_page import (
    BROWSER,
    SNOWMAN,
    create,
    finished_story,
    is_wider_than_screen,
    open_page,
    picture_texts,
    request_field,
    unfold_all,
)
from warehouse import Home

pytestmark = BROWSER

PHONE = (360, 740)
# Visible texts whose contrast, as WCAG computes it, is below 4.5.
FAINT_TEXTS = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parse(colour).map((c) => c / 255)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (parse(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
    if ((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5) faint.push(element.outerHTML);
  }
  return faint;
}"""


def test_phone_never_scrolls_horizontally(browser, studio):
    with open_page(browser, studio, *PHONE) as page:
        unfold_all(page)
        page.get_by_label("Compare two settings").check()
        assert not is_wider_than_screen(page)
        page.get_by_label("Compare two settings").uncheck()
        create(page, SNOWMAN)
        unfold_all(page)
        assert not is_wider_than_screen(page)
        page.get_by_role("link", name="History").click()
        story = page.get_by_role("list", name="Responses").get_by_role("link", name=SNOWMAN).first
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
    page.keyboard.type(SNOWMAN)
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(page, scheme):
    page.emulate_media(color_scheme=scheme)
    unfold_all(page)
    assert page.evaluate(FAINT_TEXTS) == []
    create(page, SNOWMAN)
    unfold_all(page)
    assert page.evaluate(FAINT_TEXTS) == []
    create(page, "hello")
    assert page.evaluate(FAINT_TEXTS) == []


def test_key_is_requested_where_required(browser, tmp_path):
    with interleave_serve(tmp_path / "home", key="sesame") as url, open_page(browser, url) as page:
        dialog = page.get_by_role("dialog")
        request_field(page).fill(SNOWMAN)
        request_field(page).press("Enter")
        dialog.get_by_label("API key").fill("guessed")
        page.keyboard.press("Enter")
        expect(dialog.get_by_text("This key isn't valid.")).to_be_visible()
        dialog.get_by_label("API key").fill("sesame")
        page.keyboard.press("Enter")
        assert len(picture_texts(finished_story(page))) == 4
        page.get_by_role("link", name="History").click()
        cover = page.get_by_role("list", name="Responses").locator("img")
        expect(cover).to_have_attribute("src", re.compile("^data:image/png"))
        expect(dialog).to_be_hidden()
        assert page.evaluate("localStorage.length") == 1  # set by the test's browser for Dagster
        assert page.evaluate("Object.values(sessionStorage)") == ["sesame"]


def test_key_dialog_can_be_cancelled(browser, tmp_path):
    with (
        running_service(Home(tmp_path), keys=("sesame",)) as service,
        open_page(browser, service.url) as page,
    ):
        request_field(page).fill(SNOWMAN)
        request_field(page).press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        story = finished_story(page)
        expect(story).to_contain_text("The request failed.")
        expect(page.get_by_role("button", name="Create", exact=True)).to_be_visible()
