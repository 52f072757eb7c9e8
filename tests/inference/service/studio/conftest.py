"""A service, and the studio in a browser."""

import pytest

from tests.helpers.browser import open_browser
from tests.inference.service.running_service import running_service
from tests.inference.service.studio.studio_page import open_page
from warehouse import Home


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    with running_service(Home(tmp_path_factory.mktemp("studio"))) as service:
        yield service.url


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser, studio):
    with open_page(browser, studio) as page:
        yield page
