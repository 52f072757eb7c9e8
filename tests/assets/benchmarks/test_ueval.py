"""UEval: official rows in all their forms, calls, verdicts, numbers, files of answers."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.benchmarks.benchmark import Answer, AnswerStep, ItemMetrics
from assets.benchmarks.ueval import TASKS, UEval, read_verdict
from schemas.errors import FoundryError
from tests.assets.benchmarks.official_files import (
    BLUE,
    RED,
    error_of_one_line,
    real_files,
    ueval_row,
    write_ueval,
)

ANSWER: Answer = (AnswerStep("1. Take a sheet.", RED), AnswerStep("2. Fold it.", BLUE))


@pytest.fixture
def benchmark(tmp_path: Path) -> UEval:
    rows = [ueval_row("1"), ueval_row("2", "space"), ueval_row("3", "space", image_rubrics=[])]
    return UEval(write_ueval(tmp_path, rows))


def calls_of(benchmark: UEval) -> list[Any]:
    return [(item, benchmark.calls(item, ANSWER, {})) for item in benchmark.items]


def test_rows_of_every_kind_of_file_are_the_same(tmp_path: Path) -> None:
    rows = [ueval_row("1"), ueval_row("2", "space", image_rubrics=None)]
    lines = calls_of(UEval(write_ueval(tmp_path, rows)))
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "hub" / "data").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "hub/data/test-00000-of-00001.parquet")
    assert lines == calls_of(UEval(tmp_path / "rows.json")) == calls_of(UEval(tmp_path / "hub"))
    assert [len(calls) for _, calls in lines] == [3, 2]


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match=r"has no \.parquet, \.jsonl or \.json file"):
        UEval(tmp_path)
    cases: list[tuple[list[Any], str]] = [
        ([ueval_row(), ueval_row("2", "dance")], "item 2: task"),
        ([ueval_row(prompt="")], "item 1: prompt"),
        ([ueval_row(text_rubrics=[{"tags": []}])], "item 1: text_rubrics.0"),
    ]
    for rows, problem in cases:
        with error_of_one_line(problem):
            UEval(write_ueval(tmp_path, rows))
    (tmp_path / "test.parquet").write_bytes(b"PAR1")
    with pytest.raises(FoundryError, match="cannot be read"):
        UEval(tmp_path)


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


def test_verdicts() -> None:
    for answer, verdict in (
        ('{"criteria_met": true}', True),
        ('```json\n{"criteria_met": "No", "explanation": "{x}"}\n```', False),
        ('The set {a}: {"criteria_met": "Not sure"}', "not sure"),
        ('{"criteria_met": "1"} or {"criteria_met": true}', True),
        ('{"criteria_met": true} {"criteria_met": false}', None),
        ('{"criteria_met": "mostly"}', None),
        ('{"criteria_met": 1}', None),
        ('{"criteria_met": tru', None),
        ("yes", None),
    ):
        found = read_verdict(answer)
        assert (type(found), found) == (type(verdict), verdict), answer


def test_metrics_count_only_what_is_met(benchmark: UEval) -> None:
    values = {"text-1": True, "text-2": "not sure", "image-1": True}
    item, *_, without_images = benchmark.items
    assert benchmark.metrics(item, values) == {"text_rate": 0.5, "image_rate": 1}
    unread = {**values, "text-2": None}
    assert benchmark.metrics(item, unread) == {"text_rate": None, "image_rate": 1}
    assert benchmark.metrics(item, {}) == {"text_rate": None, "image_rate": None}
    both = {"text-1": True, "text-2": True}
    assert benchmark.metrics(without_images, both) == {"text_rate": 1}


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


def test_wrong_answers_are_one_line(tmp_path: Path, benchmark: UEval) -> None:
    path = tmp_path / "theirs.json"
    for content, problem in (
        ('[{"id": "1", "text_answer": "a", "image_answer": ["no.png"]}]', "picture of item 1"),
        ('[{"id": "9", "text_answer": "a", "image_answer": []}]', "answer 9 is to no item"),
        ('[{"id": "1"}]', "answer 0.text_answer"),
        ("[", "answer file"),
    ):
        path.write_text(content)
        with error_of_one_line(problem):
            list(benchmark.read_answers(path))


def test_real_items() -> None:
    benchmark = UEval(real_files("INTERLEAVE_UEVAL"))
    assert (len(benchmark.items), {i.group for i in benchmark.items}) == (1000, set(TASKS))
    assert sum(len(calls) for _, calls in calls_of(benchmark)) == 10417
