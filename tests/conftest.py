"""What all tests share: a home, vLLM, one torch thread, slow files first."""

import os
from pathlib import Path

import pytest

from schemas import FoundryError
from warehouse import Home

# As many workers as cores: a torch thread each, in this process and in those that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no worker is left with one at the end."""
    slow = {item.path for item in items if {"slow", "long"} & {m.name for m in item.iter_markers()}}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """Interpreter of vLLM for CPU; made on first use, and a skipped test where it cannot be."""
    from training.environments import ensure_environment

    try:
        return ensure_environment("agents", "cpu")
    except FoundryError as error:
        pytest.skip(f"vLLM for CPU cannot be installed here: {error}")
