"""An open page continues its request, under the same key, on a service that was restarted."""

import re
import signal
import textwrap

import pytest
from playwright.sync_api import expect

from tests.helpers.browser import open_tab
from tests.helpers.ports import free_port
from tests.inference.service.running_service import REDRAWN, serving
from tests.inference.service.studio.studio_page import BROWSER, request_field

pytestmark = [*BROWSER, pytest.mark.long]

# Large images take long enough for a kill in between.
SLOW_PROFILE = """
    name: slow
    description: Large images
    roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
    pack: sketchbook
    sizes: {demo: 1}
    sketch: {picture_size: 1440}
    service: {grace_seconds: 0}
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_request_continues_on_a_restarted_service(browser, tmp_path, number):
    profile = tmp_path / "slow.yaml"
    profile.write_text(textwrap.dedent(SLOW_PROFILE))
    port = str(free_port())
    options = ("--profile", str(profile), "--port", port)
    with open_tab(browser) as page:
        with serving(tmp_path / "home", *options) as (process, _):
            page.goto(f"http://127.0.0.1:{port}")
            expect(page.get_by_role("button", name="Science")).to_be_attached()
            request_field(page).fill(REDRAWN)
            request_field(page).press("Enter")
            expect(page.locator(".step").first.get_by_text("Accepted")).to_be_visible()
            process.send_signal(number)
            process.wait()
        expect(page.locator("#announcements")).to_contain_text("Reconnecting")
        expect(page.get_by_role("article")).to_have_attribute("aria-busy", "true")
        with serving(tmp_path / "home", *options) as _:
            story = page.get_by_role("article")
            expect(story.get_by_text(re.compile("^Complete. [0-9]+ images drawn"))).to_be_visible()
            expect(story.locator(".step")).to_have_count(4)
            page.get_by_role("link", name="History").click()
            expect(page.get_by_text("1 response", exact=True)).to_be_visible()
