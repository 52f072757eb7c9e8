"""Small files in the form of the benchmarks' official ones, and the real ones where named."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from schemas import FoundryError
from warehouse import EncodedImage

RED, BLUE = (EncodedImage.of(Image.new("RGB", (8, 8), colour)) for colour in ("red", "blue"))


def real_files(variable: str) -> Path:
    """A copy of the official repository or data set; skips the test where there is none."""
    if variable not in os.environ:
        pytest.skip(f"{variable} names no copy of the official files")
    return Path(os.environ[variable])


@contextmanager
def error_of_one_line(problem: str) -> Iterator[None]:
    """A FoundryError that matches `problem`, in a single line."""
    with pytest.raises(FoundryError, match=problem) as error:
        yield
    assert "\n" not in str(error.value)


def comm_document(data_id: str = "17", steps: int = 4, **changes: Any) -> dict[str, Any]:
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


def write_comm(folder: Path, documents: Any, images: bool = True) -> Path:
    """The file of the documents, and four images of each."""
    path = folder / "test.json"
    path.write_text(json.dumps(documents))
    (folder / "images").mkdir(exist_ok=True)
    for document in documents if images else ():
        for number, colour in enumerate(("red", "green", "blue", "black"), 1):
            image = Image.new("RGB", (1024, 512), colour)
            image.save(folder / "images" / f"{document['data_id']}_{number}.png")
    return path


def opening_record(data_id: int = 7, text: str = "", **changes: Any) -> dict[str, Any]:
    """A line of a data file: two input parts, the first with a picture (or `text` alone), and
    three steps."""
    picture = {
        "image": "./images/Stories/7-i-1.jpg",
        "text": "Go on. <BEGIN> A fox woke up. <image>",
    }
    asked = [{"image": None, "text": text}] if text else [picture]
    asked += [] if text else [{"image": None, "text": "It was hungry."}]
    return {
        "total_uid": f"0301{data_id:03d}",
        "meta_task_id": "3",
        "meta_task_name": "Multimodal Content Completion",
        "subtask_id": "1",
        "subtask_name": "Storybook Completion",
        "data_id": str(data_id),
        "conversations": [
            {"input": asked},
            {"output": [{"image": f"./images/o-{n}.jpg", "text": f"{n} <image>"} for n in "123"]},
        ],
        **changes,
    }


def write_opening(folder: Path, records: list[dict[str, Any]]) -> Path:
    """The test items and the picture of their inputs; returns the data file."""
    images = folder / "images" / "Stories"
    images.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 20), "red").save(images / "7-i-1.jpg")
    path = folder / "test_data.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in records))
    return path


def verdict_row(item: str, a: str, b: str, winner: str) -> dict[str, Any]:
    """A row of a file of verdicts, people's or a judge's."""
    systems = {"model_A": {"id": "1", "name": a}, "model_B": {"id": "2", "name": b}}
    return {"data_id": item, **systems, "winner": winner}


def ueval_row(item_id: str = "1", task: str = "art", **changes: Any) -> dict[str, Any]:
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


def write_ueval(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "test.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in rows))
    return path


RISE_COLOURS = {"before.png": "red", "right.png": "green"}


def rise_row(category: str, number: int, /, **changes: Any) -> dict[str, Any]:
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


# One of each way in which items are judged.
RISE_ROWS = [
    rise_row("temporal", 1),
    rise_row("causal", 2, reasoning_img=True),
    rise_row("spatial", 3, consistency_free=True),
    rise_row("spatial", 4, reference_img="right.png"),
    rise_row("logical", 5),
    rise_row("logical", 6, reference_txt=None, reference_img="right.png"),
]


def write_rise(folder: Path, rows: list[dict[str, Any]] = RISE_ROWS) -> Path:
    """The data file with its pictures."""
    folder.mkdir(exist_ok=True)
    for name, colour in RISE_COLOURS.items():
        Image.new("RGB", (40, 20), colour).save(folder / name)
    (folder / "data_total.json").write_text(json.dumps(rows))
    return folder


def write_wise(folder: Path) -> Path:
    """A copy of the repository with ten prompts of both versions."""
    areas = {
        "cultural_common_sense": (2, 1, 400),
        "spatio-temporal_reasoning": (401, 568, 700),
        "natural_science": (701, 801, 901, 1000),
    }
    for place, suffix in (("WISE_legacy/data", ""), ("data_verified", "_verified")):
        (folder / place).mkdir(parents=True)
        for area, ids in areas.items():
            rows = [
                {
                    "Prompt": f"Prompt {number} of {place}",
                    "Explanation": f"Means {number}",
                    "Category": "Some",
                    "prompt_id": number,
                }
                for number in ids
            ]
            (folder / place / f"{area}{suffix}.json").write_text(json.dumps(rows))
    return folder


def write_geneval2(folder: Path) -> Path:
    """Two prompts of three and four atoms."""
    rows = [
        {
            "prompt": "two green toys",
            "atom_count": 3,
            "vqa_list": [
                ["How many toys are in the image?", "two"],
                ["Are the toys green?", "Yes"],
                ["Are there any toys in the image?", "Yes"],
            ],
            "skills": ["count", "attribute", "object"],
        },
        {
            "prompt": "a pig under seven kites",
            "atom_count": 4,
            "vqa_list": [
                ["How many pigs are in the image?", "one"],
                ["Is there a pig in the image?", "Yes"],
                ["Is the pig under the kites?", "Yes"],
                ["How many kites are in the image?", "seven"],
                ["Are there any kites in the image?", "Yes"],
            ],
            "skills": ["count", "object", "position", "count", "object"],
        },
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "geneval2_data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def weave_row(idx: int, domain: str = "fusion", **changes: Any) -> dict[str, Any]:
    """A conversation of two given pictures (1, 2), a drawn one (4), a question, and another (3)."""

    def turn(asked: str, kind: str, content: str, points: Any = None) -> list[dict[str, Any]]:
        answer = {"role": "assistant", "type": kind, "content": content, "key_point": points}
        return [{"role": "user", "type": "text", "content": asked}, answer]

    first = {"GT #2": "The hat is that of <image>", "Text": "The cat wears it"}
    second = {"Image #4": "As <image>, at night", "GT #3": "As <image>"}
    return {
        "idx": idx,
        "domain": domain,
        "images": [f"imgs/{idx}_{number}.jpg" for number in range(1, 5)],
        "chats": [
            *turn("Put the hat of Image #2 on the cat of Image #1.", "image", "Image #4", first),
            *turn("What is red in Image #4?", "text", "The hat"),
            *turn("Make it night in Image #4.", "image", "Image #3", second),
        ],
        **changes,
    }


def write_weave(folder: Path) -> Path:
    """Two conversations of two groups, and one in which nothing is drawn."""
    rows = [weave_row(0), weave_row(1, "maze"), weave_row(2)]
    rows[2]["chats"] = rows[2]["chats"][2:4]
    (folder / "test" / "imgs").mkdir(parents=True)
    for name in (name for row in rows for name in row["images"]):
        Image.new("RGB", (40, 20), "green").save(folder / "test" / name)
    (folder / "test" / "test.json").write_text(json.dumps(rows))
    return folder
