"""GenEval 2: files, layout, one-word answers and the official numbers."""

import json

import pytest

from assets.benchmarks.benchmark import NOTHING_ASKED, AnswerStep, ItemMetrics
from assets.benchmarks.geneval2 import SKILLS, GenEval2
from tests.assets.benchmarks.official_files import (
    BLUE,
    RED,
    error_of_one_line,
    real_files,
    write_geneval2,
)

ANSWER = (AnswerStep("First.", RED), AnswerStep("", BLUE))


@pytest.fixture
def geneval(tmp_path):
    return GenEval2(write_geneval2(tmp_path / "GenEval2"))


def judged(benchmark, item, *texts):
    """Values of answers to the questions about an item's picture."""
    calls = benchmark.calls(item, ANSWER, {})
    return {call.name: call.read(text) for call, text in zip(calls, texts, strict=True)}


def test_a_judge_sees_a_question_and_the_last_picture_without_the_prompt(geneval):
    toys, pig = geneval.items
    assert [item.group for item in geneval.items] == ["atoms-3", "atoms-4"]
    calls = geneval.calls(pig, ANSWER, {})
    assert [call.name for call in calls] == [f"atom-{number}" for number in range(1, 6)]
    assert all(call.images == (BLUE,) and pig.text not in call.text for call in calls)
    assert calls[0].text.endswith("\n\nHow many pigs are in the image?")
    assert geneval.calls(toys, (AnswerStep("No picture."),), {}) == []


def test_answers_are_one_word_and_never_guessed(geneval):
    count, colour, _ = geneval.calls(geneval.items[0], ANSWER, {})
    for text, value in (("two", "two"), ("2", "two"), (" **Two.**", "two"), ("12", "12")):
        assert count.read(text) == value
    assert colour.read("Yes.") == "yes" and colour.read("no") == "no"
    assert count.read("two or three") is count.read("") is colour.read("green") is None


def test_metrics_and_numbers_are_the_official_ones(geneval):
    toys, pig = geneval.items
    first = geneval.metrics(toys, judged(geneval, toys, "2", "yes", "yes"))
    assert first == {"tifa": 1, "complete": 1, "object": 1, "attribute": 1, "count": 1}
    second = geneval.metrics(pig, judged(geneval, pig, "one", "yes", "no", "six", "yes"))
    assert second == {"tifa": 0.6, "complete": 0, "object": 1, "count": 0.5, "position": 0}
    items = [ItemMetrics("1", "atoms-3", first), ItemMetrics("2", "atoms-4", second)]
    assert geneval.aggregate(items) == {
        "tifa": 80,
        "complete": 50,
        "object": 100,
        "attribute": 100,
        "count": pytest.approx(200 / 3),  # two of three questions, not the mean of prompts
        "position": 0,
        "verb": None,
        "atoms-3/complete": 100,
        "atoms-4/complete": 0,
    }
    worst = geneval.metrics(pig, {NOTHING_ASKED: True})
    assert set(worst.values()) == {0}
    unread = geneval.metrics(pig, judged(geneval, pig, "one", "yes", "maybe", "six", "yes"))
    assert set(unread.values()) == {None}


def test_pictures_are_written_with_the_official_file_of_names(geneval, tmp_path):
    folder = geneval.write_answers(tmp_path, "ours", [("2", ANSWER), ("1", ())])
    names = json.loads((folder / "images.json").read_text())
    assert names == {"a pig under seven kites": "2.png"} and (folder / "2.png").is_file()
    expected = [("2", (AnswerStep("", BLUE),))]
    assert list(geneval.read_answers(folder)) == expected
    assert list(geneval.read_answers(folder / "images.json")) == expected
    (folder / "images.json").write_text('{"a cat": "2.png"}')
    with error_of_one_line("answer 'a cat' is to no item of geneval2"):
        list(geneval.read_answers(folder))


def test_a_damaged_file_is_one_line(tmp_path):
    path = write_geneval2(tmp_path) / "geneval2_data.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps(row | {"skills": ["count"]}))
    with error_of_one_line("item 1: .*skills: must be as many as questions"):
        GenEval2(tmp_path)


def test_real_files():
    items = GenEval2(real_files("INTERLEAVE_GENEVAL2")).items
    assert len(items) == 800 and {item.group for item in items} == {
        f"atoms-{count}" for count in range(3, 11)
    }
    skills = [skill for item in items for skill in item.official.skills]
    assert len(skills) == 6012 and set(skills) == set(SKILLS)
