"""The studio in a browser, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from inference.roles import Roles
from tests.helpers.browser import CHROMIUM, TIMEOUT_SECONDS, open_tab
from tests.inference.service.running_service import running_service
from warehouse import Home

expect.set_options(timeout=TIMEOUT_SECONDS * 1000)

BROWSER = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`"),
]


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


@contextmanager
def open_page(browser: Browser, url: str, *size: int) -> Iterator[Page]:
    """The studio at an address; fails on errors and messages in its console (but 401)."""
    with open_tab(browser, *size) as page:
        messages = []
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("console", lambda message: messages.append(message.text))
        page.goto(url)
        expect(page.get_by_role("button", name="Science")).to_be_attached()
        yield page
        assert [each for each in messages if "401" not in each] == []


@contextmanager
def open_studio(
    browser: Browser, home: Home, roles: Roles | None = None, *size: int, **settings
) -> Iterator[Page]:
    """The studio of a service of its own."""
    with (
        running_service(home, roles, **settings) as service,
        open_page(browser, service.url, *size) as page,
    ):
        yield page


def request_field(page: Page) -> Locator:
    return page.get_by_label("Describe what you want to see")


def create(page: Page, text: str) -> Locator:
    """Submit a request and wait for the end of its story, which is returned."""
    request_field(page).fill(text)
    request_field(page).press("Enter")
    return finished_story(page)


def finished_story(page: Page) -> Locator:
    story = page.get_by_role("article")
    expect(story).to_have_attribute("aria-busy", "false")
    return story


def picture_texts(story: Locator) -> list[str]:
    """Alternative texts of the story's pictures, all of which must be decodable."""
    images = story.locator(".frame img")
    for image in images.all():
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 90
    return images.evaluate_all("images => images.map(image => image.alt)")


def is_wider_than_screen(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


def unfold_all(page: Page) -> None:
    page.locator("details").evaluate_all("all => all.forEach((each) => (each.open = true))")


def assert_readable(page: Page) -> None:
    """No text is faint, and the page is not wider than its screen."""
    assert page.evaluate(FAINT_TEXTS) == []
    assert not is_wider_than_screen(page)
