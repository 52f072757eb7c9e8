"""WISE: files, layout, judge's answers and the official numbers."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from assets.benchmarks.benchmark import NOTHING_ASKED, AnswerStep, ItemMetrics
from assets.benchmarks.wise import Wise
from assets.benchmarks.wise.items import Version
from assets.benchmarks.wise.scores import aggregate, read_scores
from schemas.errors import FoundryError
from warehouse import EncodedImage

RED, BLUE = (EncodedImage.of(Image.new("RGB", (900, 8), colour)) for colour in ("red", "blue"))
ANSWER = (AnswerStep("First.", RED), AnswerStep("", BLUE), AnswerStep("Done."))
LEGACY = "Consistency: 2\nRealism: 1\nAesthetic Quality: 0"


def test_items_are_grouped_by_id_as_the_calculators_do(wise_folder: Path) -> None:
    legacy, verified = Wise.open(wise_folder, "legacy"), Wise.open(wise_folder, "verified")
    assert (legacy.name, verified.name) == ("wise-legacy", "wise-verified")
    groups = [{item.item_id: item.group for item in each.items} for each in (legacy, verified)]
    assert list(groups[0]) == ["1", "2", "400", "401", "568", "700", "701", "801", "901", "1000"]
    assert [groups[0][n] for n in ("568", "700", "701")] == ["space", "space", "biology"]
    assert [groups[1][n] for n in ("568", "700", "801")] == ["space", "biology", "physics"]
    assert legacy.items[0].text == "Prompt 1 of WISE_legacy/data"
    assert Wise.open(wise_folder / "data_verified", "verified").items == verified.items


def test_missing_and_damaged_files_are_one_line(wise_folder: Path) -> None:
    file = wise_folder / "WISE_legacy/data/natural_science.json"
    rows = json.loads(file.read_text())
    file.write_text(json.dumps([{**rows[0], "prompt_id": 1001}]))
    with pytest.raises(FoundryError, match=rf"^{file}: prompt 0.prompt_id: .*; copy"):
        Wise.open(wise_folder, "legacy")
    file.write_text(json.dumps([{**rows[0], "prompt_id": 1}]))
    with pytest.raises(FoundryError, match="prompt 1 is there twice; remove one"):
        Wise.open(wise_folder, "legacy")
    file.unlink()
    with pytest.raises(FoundryError, match=rf"^{file}: cannot be read"):
        Wise.open(wise_folder, "legacy")
    with pytest.raises(FoundryError, match=r"has no cultural_common_sense.json of WISE"):
        Wise.open(wise_folder / "data_verified", "legacy")


def test_a_judge_sees_prompt_explanation_and_the_last_picture(wise_folder: Path) -> None:
    wise = Wise.open(wise_folder, "legacy")
    (call,) = wise.calls(wise.items[1], ANSWER, {})
    assert call.text.endswith("Prompt: Prompt 2 of WISE_legacy/data\nExplanation: Means 2")
    assert call.images == (BLUE,)


@pytest.mark.parametrize("version", ["legacy", "verified"])
def test_an_answer_without_a_picture_is_scored_lowest(wise_folder: Path, version: Version) -> None:
    wise = Wise.open(wise_folder, version)
    assert wise.calls(wise.items[0], ANSWER[2:], {}) == []
    assert set(wise.metrics(wise.items[0], {NOTHING_ASKED: True}).values()) == {0.0}


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (LEGACY, (2, 1, 0)),
        ("Fine.\n- **Consistency:** 2\n- **Realism**: 1.\n**aesthetic quality: 0**", (2, 1, 0)),
        (f"{LEGACY}\n{LEGACY}", (2, 1, 0)),
        (f"{LEGACY}\nRealism: 2", None),
        (LEGACY.replace("2", "3"), None),
        (LEGACY.replace("2", "1 or 2"), None),
        (LEGACY.replace("Realism: 1", ""), None),
        ("2\n1\n0", None),
        ("", None),
    ],
)
def test_legacy_answers(wise_folder: Path, text: str, scores: tuple[int, ...] | None) -> None:
    value = Wise.open(wise_folder, "legacy").parse("score", text)
    names = ("consistency", "realism", "aesthetic_quality")
    assert value == (None if scores is None else dict(zip(names, scores, strict=True)))


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("Score: 1", 1),
        ("Mooncakes, as they should be.\n**Score: 0**", 0),
        ("Score: 0\nScore: 1", None),
        ("Score: 2", None),
        ("Score: 0 or Score: 1", None),
        ("1", None),
    ],
)
def test_verified_answers(wise_folder: Path, text: str, score: int | None) -> None:
    value = Wise.open(wise_folder, "verified").parse("score", text)
    assert value == (None if score is None else {"score": score})


def test_metrics_of_an_item(wise_folder: Path) -> None:
    wise = Wise.open(wise_folder, "legacy")
    metrics = wise.metrics(wise.items[0], {"score": wise.parse("score", LEGACY)})
    assert metrics == {
        "wiscore": (0.7 * 2 + 0.2) / 2,
        "consistency": 2,
        "realism": 1,
        "aesthetic_quality": 0,
    }
    assert set(wise.metrics(wise.items[0], {"score": None}).values()) == {None}


@pytest.mark.parametrize(
    ("version", "weights"),
    [
        ("legacy", (0.4, 0.167, 0.133, 0.1, 0.1, 0.1)),
        ("verified", (0.4, 0.12, 0.12, 0.12, 0.12, 0.12)),
    ],
)
def test_the_overall_is_weighted_and_needs_every_group(
    version: Version, weights: tuple[float, ...]
) -> None:
    groups = ("culture", "time", "space", "biology", "physics", "chemistry")
    for one, weight in zip(groups, weights, strict=True):
        items = [ItemMetrics(group, group, {"wiscore": float(group == one)}) for group in groups]
        assert aggregate(items, version)["overall"] == weight
    items += [
        ItemMetrics("x", "time", {"wiscore": 1.0}),
        ItemMetrics("y", "time", {"wiscore": None}),
    ]
    assert aggregate(items, version)["time"] == 0.5
    found = aggregate(items[1:], version)
    assert (found["culture"], found["overall"], found["chemistry"]) == (None, None, 1)


def test_pictures_are_written_and_read_by_id(wise_folder: Path, tmp_path: Path) -> None:
    wise = Wise.open(wise_folder, "verified")
    folder = wise.write_answers(tmp_path, "ours", [("2", ANSWER), ("1", ANSWER), ("400", ())])
    assert sorted(file.name for file in folder.iterdir()) == ["1.png", "2.png"]
    assert list(wise.read_answers(folder)) == [(n, (AnswerStep("", BLUE),)) for n in "12"]
    wise.write_answers(tmp_path, "ours", [("2", ())])
    assert [item_id for item_id, _ in wise.read_answers(folder)] == ["1"]
    with pytest.raises(FoundryError, match="usable as a folder's name"):
        wise.write_answers(tmp_path, "../ours", [])


def test_pictures_that_cannot_be_read_are_named(wise_folder: Path, tmp_path: Path) -> None:
    wise = Wise.open(wise_folder, "verified")
    folder = wise.write_answers(tmp_path, "ours", [])
    with pytest.raises(FoundryError, match="has no pictures of answers"):
        list(wise.read_answers(folder))
    (folder / "1.png").write_bytes(BLUE.data[:30])
    with pytest.raises(FoundryError, match=r"1.png: picture of item 1 is damaged"):
        list(wise.read_answers(folder))
    (folder / "1001.png").write_bytes(BLUE.data)
    with pytest.raises(FoundryError, match=r"1001.png: is named like no item"):
        list(wise.read_answers(folder))


def test_official_result_files(tmp_path: Path) -> None:
    file = tmp_path / "scores_results.jsonl"
    row = {"prompt_id": 600, "consistency": 2.0, "realism": 0.0, "aesthetic_quality": 0.0}
    file.write_text(f"{json.dumps(row)}\n\n{json.dumps({**row, 'realism': None})}\n")
    items = read_scores([file], "legacy")
    assert [(item.item_id, item.group) for item in items] == [("600", "space")] * 2
    assert [item.metrics["wiscore"] for item in items] == [0.7, None]
    assert read_scores([file], "verified")[0] == ItemMetrics("600", "space", {"wiscore": None})
    file.write_text(json.dumps({**row, "realism": 3.0}))
    with pytest.raises(FoundryError, match=rf"^{re.escape(str(file))}: line 1: realism"):
        read_scores([file], "legacy")


def test_real_files(real_wise: Path) -> None:
    sizes: dict[Version, list[int]] = {
        "legacy": [400, 167, 133, 100, 100, 100],
        "verified": [400, 120, 120, 120, 120, 120],
    }
    for version, expected in sizes.items():
        items = Wise.open(real_wise, version).items
        assert list(Counter(item.group for item in items).values()) == expected
        assert [item.item_id for item in items] == [str(number) for number in range(1, 1001)]
