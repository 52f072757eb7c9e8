"""RISE's numbers, by hand and from the official script, and the reader of its judgements."""

import pickle
from pathlib import Path

import pytest

from assets.benchmarks.benchmark import ItemMetrics, Metrics
from assets.benchmarks.rise import Rise
from assets.benchmarks.rise.items import RiseData, load
from assets.benchmarks.rise.scores import Scorer, aggregate, item_metrics, read_judgements
from schemas.errors import FoundryError
from tests.assets.benchmarks.rise.conftest import ROWS, row, write_rows

# Index -> consistency, reasoning, plausibility; None: not judged.
ANSWERS = {
    "temporal_reasoning_1": (5, 5, 5),
    "causal_reasoning_2": (5, 1, 3),
    "spatial_reasoning_3": (None, 5, 5),
    "spatial_reasoning_4": (2, 4, 3),
    "logical_reasoning_5": (1, 1, None),
    "logical_reasoning_6": (1, 0, None),
}


def metrics(data: RiseData, index: str, scorer: Scorer = "fixed") -> Metrics:
    item = next(item for item in data.items if item.index == index)
    names = ("consistency", "reasoning", "plausibility")
    return item_metrics(data, item, dict(zip(names, ANSWERS[index], strict=True)), scorer)


def test_metrics_of_items(rise_folder: Path, tmp_path: Path) -> None:
    data = load(rise_folder)
    assert metrics(data, "temporal_reasoning_1") == {
        "accuracy": 1,
        "score": 5,
        "consistency": 5,
        "reasoning": 5,
        "plausibility": 5,
    }
    assert metrics(data, "logical_reasoning_6") == {
        "accuracy": 0,
        "score": max((0.3 * 5 + 0.7) / 2, 1),
        "consistency": 5,
        "reasoning": 1,
    }
    assert metrics(data, "spatial_reasoning_3").keys() == {
        "accuracy",
        "score",
        "reasoning",
        "plausibility",
    }


def test_the_fix_lets_items_without_consistency_be_complete(rise_folder: Path) -> None:
    data = load(rise_folder)
    assert metrics(data, "spatial_reasoning_3", "original")["accuracy"] == 0
    assert metrics(data, "spatial_reasoning_3", "fixed")["accuracy"] == 1
    for index in ANSWERS.keys() - {"spatial_reasoning_3"}:
        assert metrics(data, index, "original") == metrics(data, index, "fixed")


@pytest.mark.parametrize(
    ("rows", "score"),
    [
        ([row("spatial", 4)], 0.3 * 2 + 0.5 * 4 + 0.2 * 3),
        ([row("spatial", 4), row("causal", 2, consistency_free=True)], 0.8 * 4 + 0.2 * 3),
        ([row("spatial", 4, consistency_free=None), ROWS[2]], 0.3 * 2 + 0.5 * 4 + 0.2 * 3),
    ],
    ids=["no flag in the file", "a flag in the file", "a flag, but null here"],
)
def test_weights_of_the_score_follow_the_official_script(
    tmp_path: Path, rows: list[dict[str, object]], score: float
) -> None:
    data = load(write_rows(tmp_path / "data", rows))
    assert metrics(data, "spatial_reasoning_4")["score"] == pytest.approx(score)


def test_an_item_with_an_unreadable_answer_is_unscored(rise_folder: Path) -> None:
    rise = Rise.open(rise_folder, "fixed")
    values = {"consistency": 5, "reasoning": None, "plausibility": 5}
    found = rise.metrics(rise.items[0], values)
    assert len(found) == 5 and set(found.values()) == {None}
    assert set(rise.metrics(rise.items[4], {"reasoning-yes-no": 1}).values()) == {None}
    complete = {"consistency-yes-no": 1, "reasoning-yes-no": 1}
    assert rise.metrics(rise.items[4], complete)["accuracy"] == 1


def test_numbers_are_pooled_and_by_category() -> None:
    full = {"accuracy": 1.0, "score": 5.0, "reasoning": 5.0}
    poor = {"accuracy": 0.0, "score": 2.0, "reasoning": 1.0}
    items = [
        ItemMetrics("1", "temporal", {**full, "plausibility": 4.0}),
        ItemMetrics("2", "temporal", {**poor, "plausibility": 2.0}),
        ItemMetrics("3", "temporal", dict.fromkeys([*full, "plausibility"])),
        ItemMetrics("4", "logical", poor),
    ]
    found = aggregate(items)
    assert found["accuracy"] == pytest.approx(100 / 3)
    assert (found["score"], found["percent"], found["plausibility"]) == (3, 50, 3)
    assert (found["temporal/accuracy"], found["logical/accuracy"]) == (50, 0)
    assert found["temporal/percent"] == 62.5
    assert found["spatial/accuracy"] is found["consistency"] is None
    assert "logical/plausibility" not in found
    assert found.keys() == aggregate([]).keys()


def judgements() -> dict[str, dict[str, str | None]]:
    texts: dict[str, dict[str, str | None]] = {}
    for index, answers in ANSWERS.items():
        each = [None if a is None else f"So.\n**Final Score:** **{a}**\n" for a in answers]
        names = ("judge1", "judge2") if answers[2] is None else ("judge1", "judge2", "judge3")
        texts[index] = dict(zip(names, each, strict=False))
    return texts


def test_official_judgements_are_aggregated_again(rise_folder: Path, tmp_path: Path) -> None:
    data, path = load(rise_folder), tmp_path / "ours.pkl"
    path.write_bytes(pickle.dumps(judgements()))
    items = read_judgements(path, data, "fixed")
    assert [item.metrics for item in items] == [metrics(data, index) for index in ANSWERS]
    assert aggregate(items)["accuracy"] == 50
    assert aggregate(read_judgements(path, data, "original"))["accuracy"] == pytest.approx(100 / 3)
    unreadable = {
        **judgements(),
        "temporal_reasoning_1": {"judge1": "?", "judge2": "", "judge3": ""},
    }
    path.write_bytes(pickle.dumps(unreadable))
    found = aggregate(read_judgements(path, data, "fixed"))
    assert (found["temporal/accuracy"], found["temporal/score"]) == (0, None)


def test_the_last_digit_is_that_of_the_official_script(rise_folder: Path, tmp_path: Path) -> None:
    data, path = load(rise_folder), tmp_path / "ours.pkl"
    path.write_bytes(pickle.dumps(judgements()))
    found = aggregate(read_judgements(path, data, "original"))
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


def test_damaged_judgements_are_one_line(rise_folder: Path, tmp_path: Path) -> None:
    data, path = load(rise_folder), tmp_path / "ours.pkl"
    for content, problem in (
        (b"", "is no file of judgements"),
        (pickle.dumps(Path("x")), r"is no file of judgements \(has an object of pathlib"),
        (pickle.dumps({}), "has no judgements of item temporal_reasoning_1"),
        (pickle.dumps([]), "has no judgements of item temporal_reasoning_1"),
    ):
        path.write_bytes(content)
        with pytest.raises(FoundryError, match=problem):
            read_judgements(path, data, "fixed")
    with pytest.raises(FoundryError, match="cannot be read"):
        read_judgements(tmp_path / "none.pkl", data, "fixed")
