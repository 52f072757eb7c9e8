"""Small files in the form of CoMM's official ones."""

import json
from pathlib import Path
from typing import Any

from PIL import Image

COLOURS = ("red", "green", "blue", "black")


def document(data_id: str = "17", steps: int = 4, **changes: Any) -> dict[str, Any]:
    """Steps of a text and an image each, `images/<data_id>_<step>.png`."""
    return {
        "data_id": data_id,
        "dataset_type": "wikihow",
        "title": "Indoor Gardens",
        "summary_info": [{"type": "text", "content": "Grow inside."}],
        "step_info": [
            [
                {"type": "text", "content": f"Plant\n row {number}."},
                {"type": "image", "url": "http://x", "image_path": f"{data_id}_{number}.png"},
            ]
            for number in range(1, steps + 1)
        ],
        **changes,
    }


def write_documents(folder: Path, documents: list[dict[str, Any]]) -> Path:
    path = folder / "test.json"
    path.write_text(json.dumps(documents))
    return path


def write_images(folder: Path, data_id: str = "17", steps: int = 4) -> None:
    (folder / "images").mkdir(exist_ok=True)
    for number in range(1, steps + 1):
        image = Image.new("RGB", (1024, 512), COLOURS[(number - 1) % len(COLOURS)])
        image.save(folder / "images" / f"{data_id}_{number}.png")


def official_results(folder: Path, item_id: str, content: object) -> None:
    name = "completeness_and_text_fidelity" if item_id.endswith("1") else "evaluation_results"
    (folder / item_id).mkdir(parents=True)
    (folder / item_id / f"{name}.json").write_text(json.dumps(content))


def official_scores(score: object = 7, **changes: Any) -> dict[str, Any]:
    """What the official judge of tasks 3 and 4 writes."""
    kinds = ("style", "entity", "trend", "overall")
    return {
        "coherence_score": {f"{kind}_consistency": score for kind in kinds},
        "completeness": {"Score": score, "Justification": "fine"},
        "Image_Quality": {"Score": score, "Justification": "fine"},
        "text fidelity to images": {"Score": score, "Justification": "fine"},
        **changes,
    }
