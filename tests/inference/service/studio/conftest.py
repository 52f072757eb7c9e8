"""A service with a studio, and a page of it."""

import pytest

from tests.inference.service.running_service import running
from tests.inference.service.studio.studio_page import visitor
from warehouse import Home


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    with running(Home(tmp_path_factory.mktemp("studio"))) as service:
        yield service.url


@pytest.fixture
def page(studio):
    with visitor(studio) as page:
        yield page
