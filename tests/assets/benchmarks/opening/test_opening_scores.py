"""Means, win rates and the readers of official result files."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from assets.benchmarks.opening.judge import CRITERIA
from assets.benchmarks.opening.scores import (
    Duel,
    ScoredAnswer,
    Ties,
    agreement_labels,
    head_to_head,
    read_duels,
    read_scores,
    score_means,
    win_rates,
)
from schemas.errors import FoundryError

DUELS = [
    Duel("1", "x", "y", "A"),
    Duel("2", "y", "x", "Tie(A)"),
    Duel("3", "x", "z", "Tie(B)"),
    Duel("4", "z", "x", "B"),
    Duel("5", "x", "y", None),
]


def scored(system: str, *scores: int | None) -> list[ScoredAnswer]:
    return [
        ScoredAnswer(str(n), system, None if score is None else dict.fromkeys(CRITERIA, score))
        for n, score in enumerate(scores)
    ]


def test_means_leave_unscored_answers_out_and_say_how_many() -> None:
    means = score_means([*scored("x", 9, None, 8, 8), *scored("y", None)])
    assert means["x"].means["Correctness"] == 25 / 3
    assert (means["x"].scored, means["x"].unscored) == (3, 0.25)
    assert means["x"].published["Overall"] == means["x"].published["Correctness"] == 8.33
    assert (means["y"].published, means["y"].unscored) == ({}, 1)


def test_the_published_overall_is_a_mean_of_rounded_means() -> None:
    low, high = dict.fromkeys(CRITERIA, 0), dict.fromkeys(CRITERIA, 0)
    for name in list(CRITERIA)[:3]:
        high[name] = 1
    answers = [ScoredAnswer(str(n), "x", high if n < 1 else low) for n in range(3)]
    means = score_means(answers)["x"]
    # 3 x 0.33 / 7 = 0.1414 -> 0.14; the item's own numbers stay exact.
    assert means.published["Overall"] == 0.14
    assert answers[0].overall == 3 / 7


@pytest.mark.parametrize(
    ("ties", "expected"),
    [
        (Ties.FORCED, {"z": (0.5, 2), "x": (0.5, 4), "y": (0.5, 2)}),
        (Ties.LEFT_OUT, {"x": (1, 2), "y": (0, 1), "z": (0, 1)}),
        (Ties.LOSS, {"x": (0.5, 4), "y": (0, 2), "z": (0, 2)}),
        (Ties.HALF, {"x": (0.75, 4), "y": (0.25, 2), "z": (0.25, 2)}),
    ],
)
def test_win_rates(ties: Ties, expected: dict[str, tuple[float, int]]) -> None:
    rates = win_rates(DUELS, ties)
    assert {name: (rate.rate, rate.duels) for name, rate in rates.items()} == expected
    assert rates["x"].unscored == 1 / 5
    assert rates["y"].unscored == 1 / 3


def test_head_to_head_counts_left_out_ties_as_comparisons_like_the_official_matrix() -> None:
    assert head_to_head(DUELS, Ties.LEFT_OUT)["x", "y"].rate == 0.5
    assert head_to_head(DUELS, Ties.FORCED)["x", "z"].rate == 0.5
    assert ("y", "z") not in head_to_head(DUELS)


def test_systems_without_a_counted_comparison_have_no_rate() -> None:
    duels = [Duel("1", "x", "y", "Tie(A)"), Duel("2", "x", "y", None)]
    assert win_rates(duels, Ties.LEFT_OUT) == {}
    assert agreement_labels(duels, Ties.LEFT_OUT) == {("2", "x", "y"): None}
    assert agreement_labels(duels, Ties.HALF)["1", "x", "y"] == "Tie"
    assert agreement_labels(duels)["1", "x", "y"] == "A"


def duel_row(item: str, a: str, b: str, winner: str) -> dict[str, object]:
    return {
        "data_id": item,
        "model_A": {"id": "1", "name": a},
        "model_B": {"id": "2", "name": b},
        "winner": winner,
    }


def test_verdict_files(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    rows = [
        duel_row("1", "x", "y", "A"),
        duel_row("1", "x", "y", "B"),
        duel_row("1", "x", "z", "A"),
    ]
    path.write_text(json.dumps(rows))
    assert read_duels(path) == [Duel("1", "x", "y", "B"), Duel("1", "x", "z", "A")]
    assert read_duels(path, by_system_id=True) == [Duel("1", "x", "z", "A")]
    path.write_text(json.dumps([duel_row("1", "x", "y", "C")]))
    with pytest.raises(FoundryError, match=r"verdicts.json: row 0.winner: .*; copy the official"):
        read_duels(path)
    with pytest.raises(FoundryError, match=r"none.json: cannot be read"):
        read_duels(tmp_path / "none.json")


def test_score_files(tmp_path: Path) -> None:
    entries = {name: {"Score": 4, "Justification": "so"} for name in CRITERIA}
    rows: list[dict[str, Any]] = [
        {"data_id": "1", "model": {"id": "1", "name": "x"}, "score": entries},
        {"instance_id": "2", "model": {"name": "x"}, "score": None},
        {
            "data_id": "3",
            "model": {"name": "x"},
            "score": {**entries, "Correctness": {"Score": None}},
        },
    ]
    path = tmp_path / "scores.json"
    path.write_text(json.dumps(rows))
    answers = read_scores(path)
    assert [answer.item_id for answer in answers] == ["1", "2", "3"]
    assert [answer.overall for answer in answers] == [4, None, None]
    path.write_text(json.dumps([{**rows[0], "score": {"Correctness": {"Score": 12}}}]))
    with pytest.raises(FoundryError, match=r"row 0.score.Correctness.Score"):
        read_scores(path)


def test_real_scores_give_the_official_table(real_folder: Path) -> None:
    arena = real_folder / "Interleaved_Arena"
    means = score_means(read_scores(arena / "gpt-score_results.json"))
    with (arena / "model_score_summaries.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(means) == 11
    for row in table:
        published = means[row["Model_Name"]].published
        assert published == {name: float(row[name]) for name in published}
        assert published.keys() == {*CRITERIA, "Overall"}
