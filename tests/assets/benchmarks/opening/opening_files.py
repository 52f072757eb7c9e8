"""Small files in the form of OpenING's official ones."""

import json
from pathlib import Path
from typing import Any


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
