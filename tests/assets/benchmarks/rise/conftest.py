"""Small files in the form of RISE's official ones, and the real files where a folder is named."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

REAL = "INTERLEAVE_RISE"
COLOURS = {"before.png": "red", "right.png": "green"}


def row(category: str, number: int, /, **changes: Any) -> dict[str, Any]:
    """A row of the data file, with the reference that its category usually has."""
    reference = "reference_txt" if category == "logical" else "reference"
    return {
        "index": f"{category}_reasoning_{number}",
        "category": f"{category}_reasoning",
        "instruction": f"Do {number}.",
        "image": "before.png",
        reference: f"Result {number}",
        **changes,
    }


ROWS = [
    row("temporal", 1),
    row("causal", 2, reasoning_img=True),
    row("spatial", 3, consistency_free=True),
    row("spatial", 4, reference_img="right.png"),
    row("logical", 5),
    row("logical", 6, reference_txt=None, reference_img="right.png"),
]


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    """The data file with its pictures."""
    folder.mkdir(exist_ok=True)
    for name, colour in COLOURS.items():
        Image.new("RGB", (40, 20), colour).save(folder / name)
    (folder / "data_total.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture
def rise_folder(tmp_path: Path) -> Path:
    """Six items, one of each way in which items are judged."""
    return write_rows(tmp_path / "data", ROWS)


@pytest.fixture
def real_rise() -> Path:
    """A copy of the official repository."""
    if REAL not in os.environ:
        pytest.skip(f"{REAL} names no copy of RISEBench's repository")
    return Path(os.environ[REAL])
