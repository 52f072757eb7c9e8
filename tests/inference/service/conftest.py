"""A service on the sketch world, for the tests that only ask it."""

import pytest
from running_service import running

from interleave_foundry.warehouse import Home


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(Home(tmp_path_factory.mktemp("service"))) as it:
        yield it


@pytest.fixture(scope="module")
def client(service):
    return service.client()
