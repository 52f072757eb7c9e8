"""Fixtures shared by all tests: a lake of one's own, and the real vLLM."""

from pathlib import Path

import pytest

from schemas import FoundryError
from warehouse import Home


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
