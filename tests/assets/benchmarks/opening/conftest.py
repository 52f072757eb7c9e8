"""Small files in the form of OpenING's official ones, and the real ones where a folder is named."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

REAL = "INTERLEAVE_OPENING"


def record(data_id: int = 7, **changes: Any) -> dict[str, Any]:
    """A line of a data file: two input parts, the first with a picture, and three steps."""
    return {
        "total_uid": f"0301{data_id:03d}",
        "meta_task_id": "3",
        "meta_task_name": "Multimodal Content Completion",
        "subtask_id": "1",
        "subtask_name": "Storybook Completion",
        "data_id": str(data_id),
        "conversations": [
            {
                "input": [
                    {
                        "image": "./images/Stories/7-i-1.jpg",
                        "text": "Go on. <BEGIN> A fox woke up. <image>",
                    },
                    {"image": None, "text": "It was hungry."},
                ]
            },
            {"output": [{"image": f"./images/o-{n}.jpg", "text": f"{n} <image>"} for n in "123"]},
        ],
        **changes,
    }


def write_records(folder: Path, records: list[dict[str, Any]], split: str = "test") -> Path:
    path = folder / f"{split}_data.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in records))
    return path


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
