"""What all tests share: a home of one's own, vLLM, one torch thread, a worker for each file."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from schemas import FoundryError
from warehouse import Home

# Two workers on two cores: a torch thread each, in this process and in those that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


# A wrapper, since xdist reads the groups before any other hook runs.
@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Tests of a file share a worker, so that its fixtures are made once; slow files come first."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
    items.sort(key=lambda item: item.path not in slow)
    return (yield)


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
