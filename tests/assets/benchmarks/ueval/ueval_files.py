"""Small files in the form of UEval's official ones."""

import json
from pathlib import Path
from typing import Any

from PIL import Image

from warehouse import EncodedImage

RED = EncodedImage.of(Image.new("RGB", (8, 8), "red"))
BLUE = EncodedImage.of(Image.new("RGB", (8, 8), "blue"))


def row(item_id: str = "1", task: str = "art", **changes: Any) -> dict[str, Any]:
    """A row with two criteria for the text and one for the images."""
    return {
        "id": item_id,
        "task": task,
        "prompt": f"How to fold a boat ({item_id})?",
        "text_rubrics": ["Names the paper.", "Has four steps."],
        "image_rubrics": ["Every image shows a fold."],
        "text_ref": "Fold it.",
        "image_ref": [],
        **changes,
    }


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "test.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in rows))
    return path


def official_result(item_id: str, text: list[Any], image: list[Any]) -> dict[str, Any]:
    """An item of a result file, from what the judge said of each criterion."""

    def score(verdicts: list[Any]) -> dict[str, Any]:
        met, total = verdicts.count(True), len(verdicts)
        return {"met": met, "total": total, "rate": met / total if total else None}

    return {"id": item_id, "text_score": score(text), "image_score": score(image)}
