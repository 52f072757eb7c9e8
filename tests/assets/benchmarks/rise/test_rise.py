"""RISE: files, layout and judge's calls."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from assets.benchmarks.benchmark import NOTHING_ASKED, AnswerStep
from assets.benchmarks.rise import Rise
from assets.benchmarks.rise.judge import parse_score
from schemas.errors import FoundryError
from tests.assets.benchmarks.rise.conftest import COLOURS, row, write_rows
from warehouse import EncodedImage

BLUE = EncodedImage.of(Image.new("RGB", (900, 300), "blue"))
WHITE = EncodedImage.white((8, 8))
ANSWER = (AnswerStep("First.", WHITE), AnswerStep("Then.", BLUE), AnswerStep("Done."))


def test_items_have_the_picture_that_is_changed(rise_folder: Path) -> None:
    rise = Rise.open(rise_folder.parent, "original")
    assert (rise.name, Rise.open(rise_folder, "fixed").name) == ("rise", "rise-fixed")
    groups = [item.group for item in rise.items]
    assert groups == ["temporal", "causal", "spatial", "spatial", "logical", "logical"]
    item = rise.items[0]
    assert (item.item_id, item.text) == ("temporal_reasoning_1", "Do 1.")
    assert item.image_files == (rise_folder / "before.png",)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([row("temporal", 1), row("temporal", 1)], "item temporal_reasoning_1 is there twice"),
        ([row("temporal", 1, image="no.png")], "its picture no.png is missing"),
        ([row("logical", 1, reference_txt=None, reference_img="no.png")], "no.png is missing"),
        ([row("temporal", 1, category="spatio")], "item 0.category"),
        ([row("temporal", 1, reference=None)], "item 0: .*has no reference"),
        ([row("logical", 1, consistency_free=True)], "item 0: .*consistency_free"),
        ([], "has no items"),
    ],
)
def test_damaged_files_are_one_line(tmp_path: Path, rows: Any, problem: str) -> None:
    folder = write_rows(tmp_path / "data", rows)
    with pytest.raises(FoundryError, match=rf"^{folder}/data_total.json: .*{problem}") as info:
        Rise.open(folder, "fixed")
    assert "\n" not in str(info.value)
    with pytest.raises(FoundryError, match=r"has neither datav2_total_w_subtask.json nor"):
        Rise.open(tmp_path / "nothing", "fixed")


def seen(rise: Rise) -> dict[str, dict[str, str]]:
    """Item -> call -> the pictures that it shows, by name."""
    names = {colour: name for name, colour in COLOURS.items()} | {"blue": "answer"}
    by_value = {
        Image.new("RGB", (1, 1), colour).getpixel((0, 0)): name for colour, name in names.items()
    }
    return {
        item.item_id: {
            call.name: " ".join(by_value[each.image.getpixel((0, 0))] for each in call.images)
            for call in rise.calls(item, ANSWER, {})
        }
        for item in rise.items
    }


def test_what_a_judge_is_shown(rise_folder: Path) -> None:
    usual = {"consistency": "before.png answer", "reasoning": "answer", "plausibility": "answer"}
    assert seen(Rise.open(rise_folder, "fixed")) == {
        "temporal_reasoning_1": usual,
        "causal_reasoning_2": {**usual, "reasoning": "before.png answer"},
        "spatial_reasoning_3": {"reasoning": "answer", "plausibility": "answer"},
        "spatial_reasoning_4": {
            "consistency": "right.png answer",
            "reasoning": "right.png answer",
            "plausibility": "answer",
        },
        "logical_reasoning_5": {
            "consistency-yes-no": "before.png answer",
            "reasoning-yes-no": "answer",
        },
        "logical_reasoning_6": {
            "consistency-yes-no": "right.png answer",
            "reasoning-yes-no": "right.png answer",
        },
    }


def test_what_a_judge_reads(rise_folder: Path) -> None:
    rise = Rise.open(rise_folder, "fixed")
    texts = {
        (item.item_id, call.name): call.text
        for item in rise.items
        for call in rise.calls(item, ANSWER, {})
    }
    assert (
        "Instruction: Do 1.\nRight result: Result 1\n" in texts["temporal_reasoning_1", "reasoning"]
    )
    assert "Result" not in texts["temporal_reasoning_1", "consistency"]
    assert "Instruction" not in texts["temporal_reasoning_1", "plausibility"]
    assert "Right result" not in texts["spatial_reasoning_4", "reasoning"]
    logical = texts["logical_reasoning_5", "reasoning-yes-no"]
    assert "Right answer: Result 5" in logical and "Instruction" not in logical
    assert "Instruction: Do 6." in texts["logical_reasoning_6", "reasoning-yes-no"]
    ends = {name: text.splitlines()[-2] for (_, name), text in texts.items()}
    assert all(("1 for yes" in line) == name.endswith("-yes-no") for name, line in ends.items())


def test_one_flag_hides_the_instruction_of_all_compared_logical_items(tmp_path: Path) -> None:
    compared = {"reference_txt": None, "reference_img": "right.png"}
    rows = [row("logical", 1, **compared), row("logical", 2, **compared, reasoning_wo_ins=True)]
    rise = Rise.open(write_rows(tmp_path / "data", rows), "fixed")
    for item in rise.items:
        _, reasoning = rise.calls(item, ANSWER, {})
        assert "Instruction" not in reasoning.text


def test_large_pictures_are_reduced_and_small_ones_stay(rise_folder: Path) -> None:
    rise = Rise.open(rise_folder, "fixed")
    consistency, reasoning, _ = rise.calls(rise.items[0], ANSWER, {})
    assert [image.image.size for image in consistency.images] == [(40, 20), (768, 256)]
    assert consistency.images[0].data == (rise_folder / "before.png").read_bytes()
    assert reasoning.images == consistency.images[1:]


@pytest.mark.parametrize(
    ("call", "text", "score"),
    [
        ("reasoning", "As wanted.\nFinal score: 5", 5),
        ("reasoning", "**Final Score:** **4**.", 4),
        ("reasoning", "Final score: 3\n\nFinal score: 3", 3),
        ("reasoning", "Final score: 3\nFinal score: 4", None),
        ("reasoning", "Final score: 0", None),
        ("reasoning", "Final score: 6", None),
        ("reasoning", "Final score: 3.5", None),
        ("reasoning", "Final score: 3 or 4", None),
        ("reasoning", "I give it a 4", None),
        ("reasoning-yes-no", "Final score: 0", 0),
        ("reasoning-yes-no", "Final score: 1", 1),
        ("reasoning-yes-no", "Final score: 5", None),
        ("reasoning-yes-no", "Final score: yes", None),
    ],
)
def test_scores(call: str, text: str, score: int | None) -> None:
    assert parse_score(call, text) == score


def test_an_answer_without_a_picture_is_scored_lowest(rise_folder: Path) -> None:
    rise = Rise.open(rise_folder, "fixed")
    for item in rise.items:
        assert rise.calls(item, ANSWER[2:], {}) == []
        metrics = dict(rise.metrics(item, {NOTHING_ASKED: True}))
        assert metrics.pop("accuracy") == 0
        assert set(metrics.values()) == {1.0}


def test_pictures_are_written_and_read_by_category(rise_folder: Path, tmp_path: Path) -> None:
    rise = Rise.open(rise_folder, "fixed")
    answers = [("causal_reasoning_2", ANSWER), ("temporal_reasoning_1", ANSWER)]
    folder = rise.write_answers(tmp_path, "ours", [*answers, ("logical_reasoning_5", ())])
    file = folder / "images/causal_reasoning/causal_reasoning_2.png"
    assert file.read_bytes() == BLUE.data
    found = list(rise.read_answers(folder))
    assert found == [(name, (AnswerStep("", BLUE),)) for name, _ in reversed(answers)]
    file.unlink()
    Image.new("RGB", (8, 8)).save(file.with_suffix(".jpg"))
    assert [name for name, _ in rise.read_answers(folder)] == [name for name, _ in found]


def test_pictures_that_cannot_be_read_are_named(rise_folder: Path, tmp_path: Path) -> None:
    rise = Rise.open(rise_folder, "fixed")
    folder = rise.write_answers(tmp_path, "ours", [])
    with pytest.raises(FoundryError, match="has no pictures of answers"):
        list(rise.read_answers(folder))
    rise.write_answers(tmp_path, "ours", [("logical_reasoning_5", ANSWER)])
    file = folder / "images/logical_reasoning/logical_reasoning_5.png"
    (folder / "images/causal_reasoning").mkdir()
    file = file.rename(folder / "images/causal_reasoning/logical_reasoning_5.png")
    with pytest.raises(FoundryError, match=rf"{re.escape(str(file))}: must lie in logical"):
        list(rise.read_answers(folder))
    file.rename(file.with_name("7.png"))
    with pytest.raises(FoundryError, match=r"7.png: is named like no item"):
        list(rise.read_answers(folder))


def test_real_files(real_rise: Path) -> None:
    rise = Rise.open(real_rise, "fixed")
    calls = [(item.group, call) for item in rise.items for call in rise.calls(item, ANSWER, {})]
    assert Counter(item.group for item in rise.items) == dict.fromkeys(
        ("temporal", "causal", "spatial", "logical"), 16
    )
    assert len(calls) == 3 * 48 + 2 * 16
    assert all(max(image.image.size) <= 768 for _, call in calls for image in call.images)
