"""UEval as the framework runs it: calls, verdicts, numbers, files of answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from assets.benchmarks.benchmark import Answer, AnswerStep, Benchmark, ItemMetrics
from assets.benchmarks.ueval import UEval
from assets.benchmarks.ueval.scores import read_results, summarize
from schemas.errors import FoundryError
from tests.assets.benchmarks.ueval.ueval_files import BLUE, RED, official_result, row, write_rows

ANSWER: Answer = (AnswerStep("1. Take a sheet.", RED), AnswerStep("2. Fold it.", BLUE))


@pytest.fixture
def benchmark(tmp_path: Path) -> UEval:
    rows = [row("1", "art"), row("2", "space"), row("3", "space", image_rubrics=[])]
    return UEval.open(write_rows(tmp_path, rows))


def _verdicts(benchmark: Benchmark, index: int, *answers: str) -> dict[str, Any]:
    calls = benchmark.calls(benchmark.items[index], ANSWER, {})
    parsed = (benchmark.parse(c.name, a) for c, a in zip(calls, answers, strict=True))
    return dict(zip((call.name for call in calls), parsed, strict=True))


def test_a_call_for_every_criterion(benchmark: UEval) -> None:
    text, _, image = benchmark.calls(benchmark.items[0], ANSWER, {})
    assert (text.name, image.name) == ("text-1", "image-1")
    assert (text.images, image.images) == ((), (RED, BLUE))
    assert "1. Take a sheet.\n\n2. Fold it." in text.text
    assert text.text.endswith("Criterion:\nNames the paper.")
    assert image.text.endswith("Criterion:\nEvery image shows a fold.")


def test_only_open_tasks_show_the_text_with_the_images(benchmark: UEval) -> None:
    opened, closed = (benchmark.calls(item, ANSWER, {})[-1] for item in benchmark.items[:2])
    assert "Take a sheet" in opened.text
    assert "Take a sheet" not in closed.text
    (*_, empty) = benchmark.calls(benchmark.items[1], (), {})
    assert "Images: (none)" in empty.text


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ('{"criteria_met": true}', True),
        ('```json\n{"criteria_met": "No", "explanation": "{x}"}\n```', False),
        ('The set {a}: {"criteria_met": "Not sure"}', "not sure"),
        ('{"criteria_met": "1"} or {"criteria_met": true}', True),
        ('{"criteria_met": true} {"criteria_met": false}', None),
        ('{"criteria_met": "mostly"}', None),
        ('{"criteria_met": 1}', None),
        ('{"criteria_met": tru', None),
        ("yes", None),
    ],
)
def test_verdicts(benchmark: UEval, answer: str, verdict: object) -> None:
    assert benchmark.parse("text-1", answer) is verdict or verdict == "not sure"
    assert benchmark.parse("text-1", answer) == verdict


def test_metrics_count_only_what_is_met(benchmark: UEval) -> None:
    yes, unsure = '{"criteria_met": true}', '{"criteria_met": "not sure"}'
    item = benchmark.items[0]
    values = _verdicts(benchmark, 0, yes, unsure, yes)
    assert benchmark.metrics(item, values) == {"text_rate": 0.5, "image_rate": 1}
    unread = _verdicts(benchmark, 0, yes, "?", yes)
    assert benchmark.metrics(item, unread) == {"text_rate": None, "image_rate": 1}
    assert benchmark.metrics(item, {}) == {"text_rate": None, "image_rate": None}
    values = _verdicts(benchmark, 2, yes, yes)
    assert benchmark.metrics(benchmark.items[2], values) == {"text_rate": 1}


def test_three_averages_by_hand(benchmark: UEval) -> None:
    items = [
        ItemMetrics("1", "art", {"text_rate": 0.5, "image_rate": 1}),
        ItemMetrics("2", "space", {"text_rate": 0.25, "image_rate": 0}),
        ItemMetrics("3", "space", {"text_rate": 0.75}),
        ItemMetrics("4", "life", {"text_rate": None, "image_rate": 0.5}),
    ]
    numbers = benchmark.aggregate(items)
    assert (numbers["text_avg_rate"], numbers["image_avg_rate"]) == (0.5, 0.5)
    assert (numbers["art/average"], numbers["space/average"]) == (75, 25)
    assert (numbers["life/image"], numbers["life/average"]) == (50, None)
    assert numbers[benchmark.headline] == 50  # of art and space; life has no text
    assert numbers["item_weighted_average"] == 50
    assert set(benchmark.aggregate([]).values()) == {None}
    assert benchmark.aggregate([]).keys() == numbers.keys()


def test_official_results_are_aggregated_again(tmp_path: Path) -> None:
    rows = [
        official_result("1", [True, False, "not sure"], [True]),
        official_result("2", [True], []),
    ]
    path = tmp_path / "eval.json"
    path.write_text(json.dumps({"items": rows, "summary": {}}))
    numbers = summarize(read_results(path, {"1": "art", "2": "life"}))
    assert (numbers["text_avg_rate"], numbers["image_avg_rate"]) == ((1 / 3 + 1) / 2, 1)
    with pytest.raises(FoundryError, match="item 2 is none of UEval's"):
        read_results(path, {"1": "art"})
    path.write_text('{"items": [{"id": 1}]}')
    with pytest.raises(FoundryError, match=r"items\.0\.text_score"):
        read_results(path, {})


def test_answers_are_written_as_the_scorer_reads_them(tmp_path: Path, benchmark: UEval) -> None:
    path = benchmark.write_answers(tmp_path / "out", "ours", [("1", ANSWER), ("2", ())])
    first, second = json.loads(path.read_text())
    assert first["text_answer"] == "1. Take a sheet.\n\n2. Fold it."
    assert first["image_answer"] == ["ours_images/1_1.png", "ours_images/1_2.png"]
    assert second == {"id": "2", "text_answer": "", "image_answer": []}
    again = dict(benchmark.read_answers(path))
    before, after = (benchmark.calls(benchmark.items[0], a, {}) for a in (ANSWER, again["1"]))
    assert before == after


def test_answers_of_the_official_generators(tmp_path: Path, benchmark: UEval) -> None:
    (tmp_path / "1_1.png").write_bytes(RED.data)
    path = tmp_path / "theirs.json"
    rows: list[dict[str, Any]] = [
        {"id": 1, "task_type": "art", "gemini_text_ans": "Fold.", "gemini_image_ans": ["1_1.png"]},
        {"id": "2", "emu_text": "Fold.", "emu_image": "1_1.png"},
    ]
    path.write_text(json.dumps(rows))
    answers = dict(benchmark.read_answers(path))
    assert answers == {"1": (AnswerStep("Fold.", RED),), "2": (AnswerStep("Fold.", RED),)}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('[{"id": "1", "text_answer": "a", "image_answer": ["no.png"]}]', "picture of item 1"),
        ('[{"id": "9", "text_answer": "a", "image_answer": []}]', "answer 9 is to no item"),
        ('[{"id": "1"}]', "answer 0.text_answer"),
        ("[", "answer file"),
    ],
)
def test_wrong_answers_are_one_line(
    tmp_path: Path, benchmark: UEval, content: str, problem: str
) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(content)
    with pytest.raises(FoundryError, match=problem) as info:
        list(benchmark.read_answers(path))
    assert "\n" not in str(info.value)
