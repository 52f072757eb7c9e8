"""Small files in the form of WISE's official ones, and the real files where a folder is named."""

import json
import os
from pathlib import Path

import pytest

REAL = "INTERLEAVE_WISE"
IDS = {
    "cultural_common_sense": (2, 1, 400),
    "spatio-temporal_reasoning": (401, 568, 700),
    "natural_science": (701, 801, 901, 1000),
}


@pytest.fixture
def wise_folder(tmp_path: Path) -> Path:
    """A copy of the repository with ten prompts of both versions."""
    for folder, suffix in (("WISE_legacy/data", ""), ("data_verified", "_verified")):
        for area, ids in IDS.items():
            rows = [
                {
                    "Prompt": f"Prompt {number} of {folder}",
                    "Explanation": f"Means {number}",
                    "Category": "Some",
                    "Subcategory": "Other",
                    "prompt_id": number,
                }
                for number in ids
            ]
            file = tmp_path / "WISE" / folder / f"{area}{suffix}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(rows))
    return tmp_path / "WISE"


@pytest.fixture
def real_wise() -> Path:
    """A copy of the official repository."""
    if REAL not in os.environ:
        pytest.skip(f"{REAL} names no copy of WISE's repository")
    return Path(os.environ[REAL])
