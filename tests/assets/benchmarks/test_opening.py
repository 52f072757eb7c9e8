"""OpENING: files, judge's calls and answers, layout, numbers, people's verdicts."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from assets.benchmarks.agreement import read_comparisons
from assets.benchmarks.benchmark import AnswerStep, ItemMetrics
from assets.benchmarks.opening import CRITERIA, TASKS_PER_TOPIC, Opening, parse_verdict, read_answer
from assets.core.statistics import agreement
from schemas.errors import FoundryError
from tests.assets.benchmarks.official_files import (
    BLUE,
    error_of_one_line,
    opening_record,
    real_files,
    verdict_row,
    write_opening,
)

ANSWER = (AnswerStep("It found berries.", BLUE), AnswerStep("It slept."), AnswerStep("", BLUE))
SCORES = dict.fromkeys(CRITERIA, 7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with items 0301007 and 0301008."""
    path = tmp_path / "data"
    write_opening(path, [opening_record(7), opening_record(8)])
    return path


@pytest.fixture
def real() -> Path:
    return real_files("INTERLEAVE_OPENING")


def test_an_item_says_what_is_asked(folder: Path) -> None:
    item = Opening(folder).items[0]
    assert (item.item_id, item.group) == ("0301007", "Multimodal Content Completion")
    assert item.text == (
        "Go on. A fox woke up. <image>\nIt was hungry.\n"
        "Answer in about 3 steps, each a text with one image."
    )
    assert item.image_files == (folder / "images/Stories/7-i-1.jpg",)
    folder.rename(folder.with_name("OpenING-benchmark"))
    assert len(Opening(folder.parent).items) == 2
    assert (len(TASKS_PER_TOPIC), sum(TASKS_PER_TOPIC.values())) == (23, 56)


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(FoundryError, match=r"has no test_data.jsonl of OpENING; give the folder"):
        Opening(tmp_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"subtask_id": "9"}, "item 2: .*no task 9 of a topic 3"),
        ({"total_uid": "0301001"}, "item 2: .*total_uid 0301001 does not follow"),
        ({"conversations": [{"input": []}, {"output": []}]}, "item 2: conversations.0.input"),
        ({"meta_task_id": "three"}, "item 2: meta_task_id"),
        ({"rubric": "?"}, "item 2: rubric"),
    ]
    for changes, problem in cases:
        path = write_opening(tmp_path, [opening_record(7), {**opening_record(8), **changes}])
        with error_of_one_line(f"^{path}: {problem}"):
            Opening(tmp_path)
    write_opening(tmp_path, [opening_record(7)] * 2)
    with pytest.raises(FoundryError, match="item 0301007 is there twice"):
        Opening(tmp_path)
    for content, problem in (
        (b"", "has no items"),
        (b'{"total_uid": ', "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(FoundryError, match=problem):
            Opening(tmp_path)


def test_missing_and_damaged_pictures_are_named(folder: Path) -> None:
    picture, benchmark = folder / "images/Stories/7-i-1.jpg", Opening(folder)
    picture.write_bytes(picture.read_bytes()[:200])
    with pytest.raises(FoundryError, match=f"{re.escape(str(picture))}: .*0301007 is damaged"):
        benchmark.calls(benchmark.items[0], ANSWER, {})
    picture.unlink()
    with pytest.raises(FoundryError, match=r"item 0301007: its picture .*7-i-1.jpg is missing \("):
        Opening(folder)


def test_texts_name_the_pictures_in_order(folder: Path) -> None:
    benchmark = Opening(folder)
    (call,) = benchmark.calls(benchmark.items[0], ANSWER[::2], {})
    assert call.name == "score" and all(name in call.text for name in CRITERIA)
    assert call.text.endswith(
        "Request:\nGo on. A fox woke up. [image 1]\nIt was hungry.\n\n"
        "Answer:\nIt found berries. [image 2]\n[image 3]"
    )
    assert [image.image.size for image in call.images] == [(512, 512)] * 3
    colours = [image.image.getpixel((9, 9)) for image in call.images]
    assert colours == [(254, 0, 0), (0, 0, 255), (0, 0, 255)]


def test_two_answers_in_one_call(folder: Path) -> None:
    call = Opening(folder).compare("0301007", (), ANSWER[:1])
    assert (call.name, len(call.images)) == ("compare", 2)
    assert call.text.endswith("Answer of A:\n(empty)\n\nAnswer of B:\nIt found berries. [image 2]")
    with pytest.raises(FoundryError, match="has no item 0301009, which is compared"):
        Opening(folder).compare("0301009", (), ())


def test_scores_are_read_and_never_guessed(folder: Path) -> None:
    benchmark = Opening(folder)
    (call,) = benchmark.calls(benchmark.items[0], ANSWER, {})
    reasoned = json.dumps({name: {"reason": "fine {so}", "score": 7} for name in CRITERIA})
    for answer in (
        json.dumps(SCORES),
        "```json\n" + json.dumps(SCORES, indent=2) + "\n```",
        f"A set {{a, b}}. {reasoned}",
    ):
        assert call.read(answer) == SCORES
    for answer in (
        "All criteria: 7",
        json.dumps({**SCORES, "Correctness": 11}),
        json.dumps({**SCORES, "Correctness": 7.5}),
        json.dumps({**SCORES, "Correctness": True}),
        json.dumps({**SCORES, "Correctness": {"reason": "no score"}}),
        json.dumps(dict.fromkeys(list(CRITERIA)[1:], 7)),
        json.dumps(SCORES)[:-1],
        json.dumps(SCORES) + json.dumps({**SCORES, "Completeness": 2}),
    ):
        assert call.read(answer) is None, answer


def test_verdicts() -> None:
    for answer, verdict in (
        ("B has sharper images.\nVerdict: A", "A"),
        ("**Verdict:** b.", "B"),
        ("verdict: Tie (A)", "Tie(A)"),
        ("Verdict: Tie", None),
        ("Verdict: A or B", None),
        ("A is better", None),
    ):
        assert parse_verdict(answer) == verdict, answer


def test_answers_are_written_as_the_scorer_reads_them(folder: Path, tmp_path: Path) -> None:
    benchmark = Opening(folder)
    path = benchmark.write_answers(tmp_path, "ours", [("0301007", ANSWER)])
    assert path.name == "ours_output"
    content = json.loads((path / "0301007.json").read_text())
    answered = content["conversations"].pop()
    original = opening_record(7)
    original["conversations"].pop()
    assert content == original
    assert answered["output"] == [
        {"text": "It found berries.", "image": "0301007-o-0.png"},
        {"text": "It slept.", "image": None},
        {"text": "", "image": "0301007-o-2.png"},
    ]
    assert list(benchmark.read_answers(path)) == [("0301007", ANSWER)]
    assert read_answer(path, "0301008") is None
    with pytest.raises(FoundryError, match="usable as a folder's name"):
        benchmark.write_answers(tmp_path, "../ours", [])


def test_answers_of_others_are_read_by_the_picture_s_name(folder: Path, tmp_path: Path) -> None:
    path = Opening(folder).write_answers(tmp_path, "theirs", [("0301007", ANSWER)])
    file = path / "0301007.json"
    text = file.read_text().replace('"0301007-o', '"./gen/theirs_output/0301007-o')
    text = text.replace("It slept.", "It slept. <image>").replace("null", '""')
    file.with_suffix(".jsonl").write_text(text)
    file.unlink()
    assert read_answer(path, "0301007") == ANSWER


def test_wrong_answers_are_one_line(folder: Path, tmp_path: Path) -> None:
    benchmark = Opening(folder)
    with pytest.raises(FoundryError, match="is not a folder; give a system's answers"):
        list(benchmark.read_answers(tmp_path / "none"))
    path = benchmark.write_answers(tmp_path, "ours", [("0301007", ANSWER)])
    (path / "0301007-o-2.png").unlink()
    with pytest.raises(FoundryError, match=r"0301007-o-2.png: picture of item 0301007 cannot"):
        list(benchmark.read_answers(path))
    (path / "0301007.json").write_text('{"conversations": []}')
    with pytest.raises(FoundryError, match=r"0301007.json: answer conversations"):
        list(benchmark.read_answers(path))


def test_means_leave_unscored_answers_out(folder: Path) -> None:
    """The published overall is a mean of rounded means: 3 x 0.33 / 7 = 0.1414 -> 0.14."""
    benchmark = Opening(folder)
    low, high = dict.fromkeys(CRITERIA, 0), dict.fromkeys(CRITERIA, 0)
    for name in CRITERIA[:3]:
        high[name] = 1
    values = [benchmark.metrics(benchmark.items[0], {"score": s}) for s in (high, low, low, None)]
    assert (values[0]["overall"], set(values[3].values())) == (3 / 7, {None})
    found = benchmark.aggregate([ItemMetrics(str(n), "a", each) for n, each in enumerate(values)])
    assert (found["overall"], found["Correctness"]) == (0.14, 1 / 3)
    assert set(benchmark.aggregate([]).values()) == {None}


def test_verdict_files(tmp_path: Path) -> None:
    path, a, b = tmp_path / "verdicts.json", ("1", "x", "y"), ("1", "x", "z")
    rows = [verdict_row(*a, "A"), verdict_row(*a, "B"), verdict_row(*b, "Tie(A)")]
    path.write_text(json.dumps(rows))
    assert read_comparisons(path) == {a: "B", b: "A"}
    path.write_text(json.dumps([verdict_row(*a, "C")]))
    with pytest.raises(FoundryError, match=r"verdicts.json: item 1: winner: .*; copy the official"):
        read_comparisons(path)
    with pytest.raises(FoundryError, match=r"none.json: cannot be read"):
        read_comparisons(tmp_path / "none.json")


def test_real_items_and_answers(real: Path) -> None:
    items = Opening(real).items
    assert len(items) == 2160 and len({item.item_id[:4] for item in items}) == 56
    folders = sorted((real / "gen_outputs").iterdir())
    found = {(f.name, n): a for f in folders for n, a in Opening(real).answers_in(f)}
    assert {key: len(steps) for key, steps in found.items()} == {
        ("GPT-4o+DALL-E3_output", "0301096"): 2,
        ("GPT-4o+DALL-E3_output", "0302005"): 5,
        ("SEED-LLaMA_output", "0302005"): 7,
        ("Show-o_output", "0301096"): 2,
    }
    assert all(step.image and step.text for steps in found.values() for step in steps)


def test_real_scores_give_the_official_table(real: Path, folder: Path) -> None:
    arena, benchmark = real / "Interleaved_Arena", Opening(folder)
    by_system: dict[str, list[ItemMetrics]] = {}
    for row in json.loads((arena / "gpt-score_results.json").read_text()):
        scores = {name: entry["Score"] for name, entry in (row["score"] or {}).items()}
        known = [name for name in CRITERIA if scores.get(name) is not None]
        complete = {"score": scores if len(known) == len(CRITERIA) else None}
        metrics = benchmark.metrics(benchmark.items[0], complete)
        by_system.setdefault(row["model"]["name"], []).append(ItemMetrics("", "", metrics))
    with (arena / "model_score_summaries.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(by_system) == 11
    for printed in table:
        found = benchmark.aggregate(by_system[printed["Model_Name"]])
        assert found.pop("overall") == float(printed["Overall"])
        assert {name: round(value or 0, 2) for name, value in found.items()} == {
            name: float(printed[name]) for name in CRITERIA
        }


def test_published_agreement(real: Path) -> None:
    arena = real / "Interleaved_Arena"
    people = read_comparisons(arena / "judge_modelAB_results.json")
    assert len(people) == 4302
    for judge, share, kappa, count in (
        ("intjudge_rag-judge_modelAB_results.json", 0.824, 0.648, 4301),
        ("gpt-judge_modelAB_results.json", 0.711, 0.412, 4302),
    ):
        found = agreement(people, read_comparisons(arena / judge), resamples=200)
        assert found and found.share and found.kappa
        assert (round(found.share.mean, 3), found.share.count) == (share, count)
        assert round(found.kappa.mean, 3) == kappa
        assert found.kappa.low < found.kappa.mean < found.kappa.high
