"""A service on the sketch world, for the tests that only ask it."""

import pytest

from tests.inference.service.running_service import running_service
from warehouse import Home


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    with running_service(Home(tmp_path_factory.mktemp("service"))) as it:
        yield it


@pytest.fixture(scope="session")
def client(service):
    return service.client()
