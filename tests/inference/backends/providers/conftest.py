"""Every test may ask either provider, and has its key."""

import pytest

from tests.inference.backends.providers.faulty_provider import KEY


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)


@pytest.fixture(params=["openai", "gemini"])
def backend(request):
    return request.param
