"""Visits to the studio by a person with a browser."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.helpers.browser import CHROMIUM, PATIENCE, chromium

expect.set_options(timeout=PATIENCE * 1000)

BROWSER = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install Debian's `chromium`"),
]
SNOWMAN = "Show in 4 pictures how to build a snowman"  # 3 refused attempts with the usual seed


@contextmanager
def visitor(url: str, *size: int, **options: object) -> Iterator[Page]:
    """A page that is open at a view, and has nothing to complain of when it is closed."""
    with chromium(*size, **options) as page:
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text))
        page.goto(url)
        expect(page.get_by_role("button", name="Science")).to_be_attached()
        yield page
        assert [each for each in complaints if "401" not in each] == []


def request_field(page: Page) -> Locator:
    return page.get_by_label("What shall be told?")


def tell(page: Page, text: str) -> Locator:
    """Have a request told to its end; its story."""
    request_field(page).fill(text)
    request_field(page).press("Enter")
    return over(page)


def over(page: Page) -> Locator:
    story = page.get_by_role("article")
    expect(story).to_have_attribute("aria-busy", "false")
    return story


def pictures_seen(story: Locator) -> list[str]:
    """Texts of the story's own pictures, all of which can be seen."""
    images = story.locator(".frame img")
    for image in images.all():
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 90
    return images.evaluate_all("images => images.map(image => image.alt)")


def is_wider_than_screen(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth > innerWidth")


def unfold_all(page: Page) -> None:
    page.locator("details").evaluate_all("all => all.forEach((each) => (each.open = true))")
