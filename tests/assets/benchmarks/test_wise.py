"""WISE: files, layout, judge's answers and the official numbers."""

import json
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from assets.benchmarks.benchmark import NOTHING_ASKED, AnswerStep, ItemMetrics
from assets.benchmarks.wise import Version, Wise
from schemas.errors import FoundryError
from tests.assets.benchmarks.official_files import real_files, write_wise
from warehouse import EncodedImage

RED, BLUE = (EncodedImage.of(Image.new("RGB", (900, 8), colour)) for colour in ("red", "blue"))
ANSWER = (AnswerStep("First.", RED), AnswerStep("", BLUE), AnswerStep("Done."))
LEGACY = "Consistency: 2\nRealism: 1\nAesthetic Quality: 0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_wise(tmp_path / "WISE")


def test_items_are_grouped_by_id_as_the_calculators_do(folder: Path) -> None:
    legacy, verified = Wise(folder, "legacy"), Wise(folder, "verified")
    assert (legacy.name, verified.name) == ("wise-legacy", "wise-verified")
    groups = [{item.item_id: item.group for item in each.items} for each in (legacy, verified)]
    assert list(groups[0]) == ["1", "2", "400", "401", "568", "700", "701", "801", "901", "1000"]
    assert [groups[0][n] for n in ("568", "700", "701")] == ["space", "space", "biology"]
    assert [groups[1][n] for n in ("568", "700", "801")] == ["space", "biology", "physics"]
    assert legacy.items[0].text == "Prompt 1 of WISE_legacy/data"
    assert Wise(folder / "data_verified", "verified").items == verified.items


def test_missing_and_damaged_files_are_one_line(folder: Path) -> None:
    file = folder / "WISE_legacy/data/natural_science.json"
    rows = json.loads(file.read_text())
    file.write_text(json.dumps([{**rows[0], "prompt_id": 1001}]))
    with pytest.raises(FoundryError, match=rf"^{file}: item 1: prompt_id: .*; copy"):
        Wise(folder, "legacy")
    file.unlink()
    with pytest.raises(FoundryError, match=rf"^{file}: cannot be read"):
        Wise(folder, "legacy")
    with pytest.raises(FoundryError, match=r"has no cultural_common_sense.json of WISE"):
        Wise(folder / "data_verified", "legacy")


def test_a_judge_sees_prompt_explanation_and_the_last_picture(folder: Path) -> None:
    wise = Wise(folder, "legacy")
    (call,) = wise.calls(wise.items[1], ANSWER, {})
    assert call.text.endswith("Prompt: Prompt 2 of WISE_legacy/data\nExplanation: Means 2")
    assert call.text.count("outstanding") == 1 and "Score: N" not in call.text
    assert call.images == (BLUE,)


def test_judges_answers_are_read_and_never_guessed(folder: Path) -> None:
    benchmarks = Wise(folder, "legacy"), Wise(folder, "verified")
    legacy, verified = (each.calls(each.items[0], ANSWER, {})[0] for each in benchmarks)
    for text, scores in (
        (LEGACY, (2, 1, 0)),
        ("Fine.\n- **Consistency:** 2\n- **Realism**: 1.\n**aesthetic quality: 0**", (2, 1, 0)),
        (f"{LEGACY}\nRealism: 2", None),
        (LEGACY.replace("2", "3"), None),
        (LEGACY.replace("Realism: 1", ""), None),
        ("2\n1\n0", None),
    ):
        names = ("consistency", "realism", "aesthetic_quality")
        expected = scores and dict(zip(names, scores, strict=True))
        assert legacy.read(text) == expected, text
    for text, score in (
        ("Right.\n**Score: 1**", 1),
        ("Score: 0", 0),
        ("Score: 2", None),
        ("It is right", None),
    ):
        assert verified.read(text) == (None if score is None else {"score": score}), text


def test_metrics_of_an_item(folder: Path) -> None:
    wise = Wise(folder, "legacy")
    (call,) = wise.calls(wise.items[0], ANSWER, {})
    metrics = wise.metrics(wise.items[0], {"score": call.read(LEGACY)})
    assert metrics == {
        "wiscore": (0.7 * 2 + 0.2) / 2,
        "consistency": 2,
        "realism": 1,
        "aesthetic_quality": 0,
    }
    assert set(wise.metrics(wise.items[0], {"score": None}).values()) == {None}
    for each in (wise, Wise(folder, "verified")):
        assert each.calls(each.items[0], ANSWER[2:], {}) == [], "no picture: the lowest values"
        assert set(each.metrics(each.items[0], {NOTHING_ASKED: True}).values()) == {0.0}


def test_the_overall_is_weighted_and_needs_every_group(folder: Path) -> None:
    groups = ("culture", "time", "space", "biology", "physics", "chemistry")
    published: dict[Version, tuple[float, ...]] = {
        "legacy": (0.4, 0.167, 0.133, 0.1, 0.1, 0.1),
        "verified": (0.4, 0.12, 0.12, 0.12, 0.12, 0.12),
    }
    for version, weights in published.items():
        wise = Wise(folder, version)
        for one, weight in zip(groups, weights, strict=True):
            items = [ItemMetrics(name, name, {"wiscore": float(name == one)}) for name in groups]
            assert wise.aggregate(items)["overall"] == weight
        items += [
            ItemMetrics("x", "time", {"wiscore": 1.0}),
            ItemMetrics("y", "time", {"wiscore": None}),
        ]
        assert wise.aggregate(items)["time"] == 0.5
        found = wise.aggregate(items[1:])
        assert (found["culture"], found["overall"], found["chemistry"]) == (None, None, 1)


def test_pictures_are_written_and_read_by_id(folder: Path, tmp_path: Path) -> None:
    wise = Wise(folder, "verified")
    answers = wise.write_answers(tmp_path, "ours", [("2", ANSWER), ("1", ANSWER), ("400", ())])
    assert sorted(file.name for file in answers.iterdir()) == ["1.png", "2.png"]
    assert list(wise.read_answers(answers)) == [(n, (AnswerStep("", BLUE),)) for n in "12"]
    wise.write_answers(tmp_path, "ours", [("2", ())])
    assert [item_id for item_id, _ in wise.read_answers(answers)] == ["1"]


def test_real_files() -> None:
    sizes: dict[Version, list[int]] = {
        "legacy": [400, 167, 133, 100, 100, 100],
        "verified": [400, 120, 120, 120, 120, 120],
    }
    for version, expected in sizes.items():
        items = Wise(real_files("INTERLEAVE_WISE"), version).items
        assert list(Counter(item.group for item in items).values()) == expected
        assert [item.item_id for item in items] == [str(number) for number in range(1, 1001)]
