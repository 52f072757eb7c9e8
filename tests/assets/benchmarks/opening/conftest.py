"""A small benchmark, and the real files where a folder is named."""

import os
from pathlib import Path

import pytest
from PIL import Image

from tests.assets.benchmarks.opening.opening_files import record, write_records

REAL = "INTERLEAVE_OPENING"


@pytest.fixture
def benchmark_folder(tmp_path: Path) -> Path:
    """A data folder with items 0301007 and 0301008 and the picture of their inputs."""
    images = tmp_path / "data" / "images" / "Stories"
    images.mkdir(parents=True)
    Image.new("RGB", (40, 20), "red").save(images / "7-i-1.jpg")
    write_records(tmp_path / "data", [record(7), record(8)])
    return tmp_path / "data"


@pytest.fixture
def real_folder() -> Path:
    """A copy of the official repository."""
    if REAL not in os.environ:
        pytest.skip(f"{REAL} names no copy of OpenING's repository")
    return Path(os.environ[REAL])
