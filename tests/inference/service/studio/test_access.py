"""The studio for everybody: on a phone, by keyboard, to be read by all eyes, and with a key."""

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.helpers.browser import interleave_serve
from tests.inference.service.running_service import running
from tests.inference.service.studio.studio_page import (
    BROWSER,
    SNOWMAN,
    is_wider_than_screen,
    over,
    pictures_seen,
    request_field,
    tell,
    unfold_all,
    visitor,
)
from warehouse import Home

pytestmark = BROWSER

PHONE = (360, 740)
# Contrast of the texts that can be seen, as WCAG computes it: those below 4.5.
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


def test_a_phone_never_scrolls_sideways(studio):
    with visitor(studio, *PHONE) as page:
        unfold_all(page)
        page.get_by_label("Compare two settings").check()
        assert not is_wider_than_screen(page)
        page.get_by_label("Compare two settings").uncheck()
        tell(page, SNOWMAN)
        unfold_all(page)
        assert not is_wider_than_screen(page)
        page.get_by_role("link", name="Earlier stories").click()
        story = page.get_by_role("list", name="Stories").get_by_role("link", name=SNOWMAN).first
        expect(story).to_be_visible()
        assert not is_wider_than_screen(page)
        story.click()
        over(page)
        unfold_all(page)
        assert not is_wider_than_screen(page)


def test_the_keyboard_alone_suffices(page):
    def go_to(element: Locator) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if element.evaluate("element => element === document.activeElement"):
                outline = element.evaluate("element => getComputedStyle(element).outlineStyle")
                assert outline == "solid", "where the focus is cannot be seen"
                return
        raise AssertionError(f"the focus never came to {element}")

    go_to(page.get_by_role("link", name="Skip to the content"))
    go_to(page.get_by_role("link", name="Earlier stories"))
    go_to(request_field(page))
    page.keyboard.type(SNOWMAN)
    page.keyboard.press("Enter")
    story = over(page)
    go_to(page.locator("#settings > summary"))
    page.keyboard.press("Enter")
    expect(page.get_by_label("Attempts per step").first).to_be_visible()
    page.keyboard.press("Enter")
    go_to(story.get_by_role("link", name="Step 3"))
    page.keyboard.press("Enter")
    go_to(story.locator(".step").nth(2).locator(".refused > summary"))
    page.keyboard.press("Space")
    expect(story.get_by_text("The step failed.").first).to_be_visible()
    go_to(story.get_by_role("button", name="HTML page"))
    with page.expect_download():
        page.keyboard.press("Enter")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(page, scheme):
    page.emulate_media(color_scheme=scheme)
    unfold_all(page)
    assert page.evaluate(FAINT_TEXTS) == []
    tell(page, SNOWMAN)
    unfold_all(page)
    assert page.evaluate(FAINT_TEXTS) == []
    tell(page, "hello")
    assert page.evaluate(FAINT_TEXTS) == []


def test_a_key_is_asked_for_where_one_is_needed(tmp_path):
    with interleave_serve(tmp_path / "home", key="sesame") as url, visitor(url) as page:
        dialog = page.get_by_role("dialog")
        request_field(page).fill(SNOWMAN)
        request_field(page).press("Enter")
        dialog.get_by_label("API key").fill("guessed")
        page.keyboard.press("Enter")
        expect(dialog.get_by_text("The service does not know this key.")).to_be_visible()
        dialog.get_by_label("API key").fill("sesame")
        page.keyboard.press("Enter")
        assert len(pictures_seen(over(page))) == 4
        page.get_by_role("link", name="Earlier stories").click()
        cover = page.get_by_role("list", name="Stories").locator("img")
        expect(cover).to_have_attribute("src", re.compile("^data:image/png"))
        expect(dialog).to_be_hidden()
        assert page.evaluate("localStorage.length") == 1  # what Dagster's pages would look at
        assert page.evaluate("Object.values(sessionStorage)") == ["sesame"]


def test_who_has_no_key_may_leave_it(tmp_path):
    with running(Home(tmp_path), keys=("sesame",)) as service, visitor(service.url) as page:
        request_field(page).fill(SNOWMAN)
        request_field(page).press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        story = over(page)
        expect(story).to_contain_text("Something went wrong.")
        expect(page.get_by_role("button", name="Tell the story", exact=True)).to_be_visible()
