"""The providers' key, and a parameter for tests that run with both."""

import pytest

from tests.inference.backends.providers.faulty_provider import KEY


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)


@pytest.fixture(params=["openai", "gemini"])
def backend(request):
    return request.param
