"""Fixtures shared by all tests: a lake of one's own, and the real vLLM."""

from pathlib import Path

import pytest

from interleave_foundry.schemas import FoundryError
from interleave_foundry.warehouse import Home


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """Interpreter of vLLM for CPU; made on first use, and a skipped test where it cannot be."""
    from interleave_foundry.training.environments import python_of

    try:
        return python_of("agents", "cpu")
    except FoundryError as error:
        pytest.skip(f"vLLM for CPU cannot be installed here: {error}")
