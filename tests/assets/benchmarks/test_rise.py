"""RISE: files, layout, judge's calls, and its numbers by hand and from the official script."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from assets.benchmarks.benchmark import NOTHING_ASKED, AnswerStep, ItemMetrics, Metrics
from assets.benchmarks.rise import Rise, Scorer
from schemas.errors import FoundryError
from tests.assets.benchmarks.official_files import (
    RISE_COLOURS,
    RISE_ROWS,
    error_of_one_line,
    real_files,
    rise_row,
    write_rise,
)
from warehouse import EncodedImage

BLUE = EncodedImage.of(Image.new("RGB", (900, 300), "blue"))
WHITE = EncodedImage.white((8, 8))
ANSWER = (AnswerStep("First.", WHITE), AnswerStep("Then.", BLUE), AnswerStep("Done."))
# Index -> what a judge says of consistency, reasoning, plausibility; None: not asked.
JUDGED = {
    "temporal_reasoning_1": (5, 5, 5),
    "causal_reasoning_2": (5, 1, 3),
    "spatial_reasoning_3": (None, 5, 5),
    "spatial_reasoning_4": (2, 4, 3),
    "logical_reasoning_5": (1, 1, None),
    "logical_reasoning_6": (1, 0, None),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_rise(tmp_path / "data")


def metrics(rise: Rise, index: str) -> Metrics:
    item = next(item for item in rise.items if item.item_id == index)
    ending = "-yes-no" * (item.group == "logical")
    names = (f"{name}{ending}" for name in ("consistency", "reasoning", "plausibility"))
    return rise.metrics(item, dict(zip(names, JUDGED[index], strict=True)))


def judged(rise: Rise) -> list[ItemMetrics]:
    return [ItemMetrics(i.item_id, i.group, metrics(rise, i.item_id)) for i in rise.items]


def test_items_have_the_picture_that_is_changed(folder: Path) -> None:
    rise = Rise(folder.parent, "original")
    assert (rise.name, Rise(folder, "fixed").name) == ("rise", "rise-fixed")
    groups = [item.group for item in rise.items]
    assert groups == ["temporal", "causal", "spatial", "spatial", "logical", "logical"]
    item = rise.items[0]
    assert (item.item_id, item.text) == ("temporal_reasoning_1", "Do 1.")
    assert item.image_files == (folder / "before.png",)


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    cases: list[tuple[list[Any], str]] = [
        ([rise_row("temporal", 1, image="no.png")], "its picture no.png is missing"),
        ([rise_row("logical", 1, reference_txt=None, reference_img="no.png")], "no.png is missing"),
        ([rise_row("temporal", 1, category="spatio")], "item 1: category"),
        ([rise_row("temporal", 1, reference=None)], "item 1: .*has no reference"),
        ([rise_row("logical", 1, consistency_free=True)], "item 1: .*consistency_free"),
    ]
    for rows, problem in cases:
        folder = write_rise(tmp_path / "data", rows)
        with error_of_one_line(rf"^{folder}/data_total.json: .*{problem}"):
            Rise(folder, "fixed")
    with pytest.raises(FoundryError, match=r"has no datav2_total_w_subtask.json or data_total"):
        Rise(tmp_path / "nothing", "fixed")


def test_what_a_judge_is_shown(folder: Path) -> None:
    names = {colour: name for name, colour in RISE_COLOURS.items()} | {"blue": "answer"}
    by_value = {Image.new("RGB", (1, 1), c).getpixel((0, 0)): name for c, name in names.items()}
    rise = Rise(folder, "fixed")
    seen = {
        item.item_id: {
            call.name: " ".join(by_value[each.image.getpixel((0, 0))] for each in call.images)
            for call in rise.calls(item, ANSWER, {})
        }
        for item in rise.items
    }
    usual = {"consistency": "before.png answer", "reasoning": "answer", "plausibility": "answer"}
    assert seen == {
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


def test_what_a_judge_reads(folder: Path) -> None:
    rise = Rise(folder, "fixed")
    texts = {
        (item.item_id, call.name): call.text
        for item in rise.items
        for call in rise.calls(item, ANSWER, {})
    }
    reasoning = texts["temporal_reasoning_1", "reasoning"]
    assert "Instruction: Do 1.\nRight result: Result 1\n" in reasoning
    assert "Result" not in texts["temporal_reasoning_1", "consistency"]
    assert "Instruction" not in texts["temporal_reasoning_1", "plausibility"]
    assert "Right result" not in texts["spatial_reasoning_4", "reasoning"]
    assert "3D rendering is no fault" in texts["spatial_reasoning_4", "plausibility"]
    logical = texts["logical_reasoning_5", "reasoning-yes-no"]
    assert "Right answer: Result 5" in logical and "Instruction" not in logical
    assert "Instruction: Do 6." in texts["logical_reasoning_6", "reasoning-yes-no"]
    ends = {name: text.splitlines()[-2] for (_, name), text in texts.items()}
    assert all(("1 for yes" in line) == name.endswith("-yes-no") for name, line in ends.items())


def test_one_flag_hides_the_instruction_of_all_compared_logical_items(tmp_path: Path) -> None:
    compared = {"reference_txt": None, "reference_img": "right.png"}
    rows = [
        rise_row("logical", 1, **compared),
        rise_row("logical", 2, **compared, reasoning_wo_ins=True),
    ]
    rise = Rise(write_rise(tmp_path / "data", rows), "fixed")
    for item in rise.items:
        _, reasoning = rise.calls(item, ANSWER, {})
        assert "Instruction" not in reasoning.text


def test_large_pictures_are_reduced_and_small_ones_stay(folder: Path) -> None:
    rise = Rise(folder, "fixed")
    consistency, reasoning, _ = rise.calls(rise.items[0], ANSWER, {})
    assert [image.image.size for image in consistency.images] == [(40, 20), (768, 256)]
    assert consistency.images[0].data == (folder / "before.png").read_bytes()
    assert reasoning.images == consistency.images[1:]


def test_scores_are_read_and_never_guessed(folder: Path) -> None:
    rise = Rise(folder, "fixed")
    calls = (call for item in rise.items for call in rise.calls(item, ANSWER, {}))
    reads = {call.name: call.read for call in calls}
    for call, text, score in (
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
    ):
        assert reads[call](text) == score, text


def test_an_answer_without_a_picture_is_scored_lowest(folder: Path) -> None:
    rise = Rise(folder, "fixed")
    for item in rise.items:
        assert rise.calls(item, ANSWER[2:], {}) == []
        found = dict(rise.metrics(item, {NOTHING_ASKED: True}))
        assert found.pop("accuracy") == 0
        assert set(found.values()) == {1.0}


def test_pictures_are_written_and_read_by_category(folder: Path, tmp_path: Path) -> None:
    rise = Rise(folder, "fixed")
    answers = [("causal_reasoning_2", ANSWER), ("temporal_reasoning_1", ANSWER)]
    path = rise.write_answers(tmp_path, "ours", [*answers, ("logical_reasoning_5", ())])
    file = path / "images/causal_reasoning/causal_reasoning_2.png"
    assert file.read_bytes() == BLUE.data
    found = list(rise.read_answers(path))
    assert found == [(name, (AnswerStep("", BLUE),)) for name, _ in reversed(answers)]
    file.unlink()
    Image.new("RGB", (8, 8)).save(file.with_suffix(".jpg"))
    assert [name for name, _ in rise.read_answers(path)] == [name for name, _ in found]
    moved = file.with_suffix(".jpg").rename(
        path / "images/temporal_reasoning/causal_reasoning_2.jpg"
    )
    with pytest.raises(FoundryError, match=rf"{moved}: is named like no item of its folder"):
        list(rise.read_answers(path))
    with pytest.raises(FoundryError, match="has no pictures of answers"):
        list(rise.read_answers(tmp_path / "none"))


def test_metrics_of_items(folder: Path) -> None:
    rise = Rise(folder, "fixed")
    assert metrics(rise, "temporal_reasoning_1") == {
        "accuracy": 1,
        "score": 5,
        "consistency": 5,
        "reasoning": 5,
        "plausibility": 5,
    }
    assert metrics(rise, "logical_reasoning_6") == {
        "accuracy": 0,
        "score": max((0.3 * 5 + 0.7) / 2, 1),
        "consistency": 5,
        "reasoning": 1,
    }
    judged_without = {"accuracy", "score", "reasoning", "plausibility"}
    assert metrics(rise, "spatial_reasoning_3").keys() == judged_without
    values = {"consistency": 5, "reasoning": None, "plausibility": 5}
    found = rise.metrics(rise.items[0], values)
    assert len(found) == 5 and set(found.values()) == {None}, "an answer that cannot be read"
    assert set(rise.metrics(rise.items[4], {"reasoning-yes-no": 1}).values()) == {None}


def test_the_fix_lets_items_without_consistency_be_complete(folder: Path) -> None:
    original, fixed = Rise(folder, "original"), Rise(folder, "fixed")
    assert metrics(original, "spatial_reasoning_3")["accuracy"] == 0
    assert metrics(fixed, "spatial_reasoning_3")["accuracy"] == 1
    for index in JUDGED.keys() - {"spatial_reasoning_3"}:
        assert metrics(original, index) == metrics(fixed, index)


def test_weights_of_the_score_follow_the_official_script(tmp_path: Path) -> None:
    with_consistency, without = 0.3 * 2 + 0.5 * 4 + 0.2 * 3, 0.8 * 4 + 0.2 * 3
    cases: list[tuple[list[Any], float]] = [
        ([rise_row("spatial", 4)], with_consistency),  # no flag in the file
        ([rise_row("spatial", 4), rise_row("causal", 2, consistency_free=True)], without),
        ([rise_row("spatial", 4, consistency_free=None), RISE_ROWS[2]], with_consistency),
    ]
    for rows, score in cases:
        rise = Rise(write_rise(tmp_path / "data", rows), "fixed")
        assert metrics(rise, "spatial_reasoning_4")["score"] == pytest.approx(score)


def test_numbers_are_pooled_and_by_category(folder: Path) -> None:
    full = {"accuracy": 1.0, "score": 5.0, "reasoning": 5.0}
    poor = {"accuracy": 0.0, "score": 2.0, "reasoning": 1.0}
    items = [
        ItemMetrics("1", "temporal", {**full, "plausibility": 4.0}),
        ItemMetrics("2", "temporal", {**poor, "plausibility": 2.0}),
        ItemMetrics("3", "temporal", dict.fromkeys([*full, "plausibility"])),
        ItemMetrics("4", "logical", poor),
    ]
    rise = Rise(folder, "fixed")
    found = rise.aggregate(items)
    assert found["accuracy"] == pytest.approx(100 / 3)
    assert (found["score"], found["percent"], found["plausibility"]) == (3, 50, 3)
    assert (found["temporal/accuracy"], found["logical/accuracy"]) == (50, 0)
    assert found["temporal/percent"] == 62.5
    assert found["spatial/accuracy"] is found["consistency"] is None
    assert "logical/plausibility" not in found
    assert found.keys() == rise.aggregate([]).keys()


def test_the_last_digit_is_that_of_the_official_script(folder: Path) -> None:
    scorers: tuple[Scorer, ...] = ("original", "fixed")
    original, fixed = (Rise(folder, scorer) for scorer in scorers)
    found = original.aggregate(judged(original))
    printed = {  # by gpt_eval.py, before the fix, for these judgements
        "score": 3.483333333333334,
        "percent": 62.08333333333334,
        "accuracy": 100 * 0.3333333333333333,
        "reasoning": 3.5,
        "consistency": 4.4,
        "plausibility": 4.0,
        "causal/score": 1.0,
        "spatial/score": 4.4,
        "spatial/percent": 85.00000000000001,
        "spatial/consistency": 2.0,
        "logical/percent": 51.24999999999999,
        "logical/accuracy": 50.0,
    }
    assert {name: found[name] for name in printed} == printed
    assert fixed.aggregate(judged(fixed))["accuracy"] == 50


def test_real_files() -> None:
    rise = Rise(real_files("INTERLEAVE_RISE"), "fixed")
    calls = [(item.group, call) for item in rise.items for call in rise.calls(item, ANSWER, {})]
    assert Counter(item.group for item in rise.items) == dict.fromkeys(
        ("temporal", "causal", "spatial", "logical"), 16
    )
    assert len(calls) == 3 * 48 + 2 * 16
    assert all(max(image.image.size) <= 768 for _, call in calls for image in call.images)
