"""Files in the forms of the authors' released data, with what such files have wrong with them."""

import json
from pathlib import Path

import pandas as pd
from PIL import Image

ELSEWHERE = "/data/somebody/Train-Data"
PLAN = (
    "<think>A cat in two steps.</think>\n<answer>[{'step_number': 1, 'step_name': 'Head', "
    "'instruction': 'Draw the head.', 'prompt': 'A head.', 'auxiliary_text': 'None'}, "
    "{'step_number': 2, 'step_name': 'Body', 'instruction': 'Draw the body.', "
    "'prompt': 'Add a body.', 'auxiliary_text': None}]</answer>"
)
VERDICT = (
    "<think>It is there.</think><answer>{'previous_step_success': True, "
    "'refine_prompt': ''}</answer>"
)


def turns(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def write_images(folder: Path) -> list[str]:
    """Three images of the release, by the paths that its files name."""
    names = []
    for number, colour in enumerate(("white", "orange", "teal")):
        path = folder / "Klein_data" / "7_cat" / f"step1_{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), colour).save(path)
        names.append(f"{ELSEWHERE}/{path.relative_to(folder).as_posix()}")
    return names


def planner_sft(folder: Path) -> Path:
    images = write_images(folder)
    rows = [
        {"messages": turns("How to draw a cat?", PLAN), "images": []},
        {"messages": turns("Go on: 1. Head. <image>", PLAN), "images": images[1:2]},
        {"messages": turns("Two <image><image>", PLAN), "images": images[:1]},
        {"messages": turns("A plan?", "I cannot."), "images": []},
        {"messages": turns("Lost <image>", PLAN), "images": [f"{ELSEWHERE}/lost.png"]},
        {"messages": turns("Only a question", PLAN)[:1], "images": []},
    ]
    path = folder / "planner_sft.json"
    path.write_text(json.dumps(rows))
    return path


def critic_sft(folder: Path, count: int = 4) -> Path:
    images = write_images(folder)
    rows = [
        {"messages": turns(f"<image><image>\nIs {n} done?", VERDICT), "images": images[:2]}
        for n in range(count)
    ]
    rows.append({"messages": turns("<image> done?", VERDICT), "images": images[:1]})
    path = folder / "critic_sft.json"
    path.write_text(json.dumps(rows))
    return path


def critic_rl(folder: Path) -> Path:
    _, before, after = write_images(folder)
    truth = {"success": False, "semantics": 4, "quality": 7.5}
    other = {"previous_step_success": True, "semantic_score": "9", "quality_score": 8}
    rows = [
        _rl("Draw a cat.", "", "data/interleave/white.png", before, truth),
        _rl("Add a hat.", "Add a red hat.", before, after, other),
        _rl("Add a hat.", "", before, after, {"success": True, "semantics": 11, "quality": 1}),
        _rl("Add a hat.", "", before, f"{ELSEWHERE}/gone.png", truth),
    ]
    lines = [json.dumps(row) for row in rows]
    path = folder / "critic_rl.jsonl"
    path.write_text("\n".join([*lines[:1], "{broken", *lines[1:]]) + "\n\n")
    return path


def prompts(folder: Path, suffix: str, texts: list[str]) -> Path:
    """Prompts in the columns of `prompt40k.jsonl`, in another format by the suffix."""
    path = folder / f"prompts{suffix}"
    rows = pd.DataFrame({"id": [str(n) for n in range(len(texts))], "user_input": texts})
    if suffix == ".csv":
        rows.to_csv(path, index=False)
    elif suffix == ".parquet":
        rows.to_parquet(path)
    else:
        rows.to_json(path, orient="records", lines=True)
    return path


def _rl(
    origin: str, rewritten: str, before: str, after: str, evaluation: dict[str, object]
) -> dict[str, object]:
    return {
        "origin_prompt": origin,
        "rewritten_prompt": rewritten,
        "origin_image_path": before,
        "edited_image_path": after,
        "evaluation": evaluation,
    }
