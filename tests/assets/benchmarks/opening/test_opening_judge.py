"""What a judge is asked, and answers that can and cannot be read."""

import json
from pathlib import Path

import pytest
from PIL import Image

from assets.benchmarks.benchmark import AnswerStep
from assets.benchmarks.opening.items import load, load_images
from assets.benchmarks.opening.judge import (
    COMPARE,
    CRITERIA,
    SCORE,
    compare_call,
    parse,
    score_call,
)
from warehouse import EncodedImage

GREEN = EncodedImage.of(Image.new("RGB", (8, 8), "green"))
SCORES = dict.fromkeys(CRITERIA, 7)


def test_texts_name_the_pictures_in_order(benchmark_folder: Path) -> None:
    item = load(benchmark_folder)[0]
    images = load_images(benchmark_folder, item)
    call = score_call(item, images, [AnswerStep("Berries.", GREEN), AnswerStep("", GREEN)])
    assert call.name == SCORE
    assert all(name in call.text for name in CRITERIA)
    assert call.text.endswith(
        "A fox woke up. [image 1]\nIt was hungry.\n\nAnswer:\nBerries. [image 2]\n[image 3]"
    )
    assert [image.image.size for image in call.images] == [(512, 512)] * 3
    colours = [image.image.getpixel((9, 9)) for image in call.images]
    assert colours == [(254, 0, 0), (0, 128, 0), (0, 128, 0)]


def test_two_answers_in_one_call(benchmark_folder: Path) -> None:
    item = load(benchmark_folder)[0]
    images = load_images(benchmark_folder, item)
    call = compare_call(item, images, [], [AnswerStep("Berries.", GREEN)])
    assert (call.name, len(call.images)) == (COMPARE, 2)
    assert call.text.endswith("Answer of A:\n(empty)\n\nAnswer of B:\nBerries. [image 2]")
    with pytest.raises(ValueError, match="item 0301007 has 1 pictures, not 0"):
        compare_call(item, [], [], [])


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps(SCORES),
        "```json\n" + json.dumps(SCORES, indent=2) + "\n```",
        "A set {a, b}. " + json.dumps({n: {"reason": "fine {so}", "score": 7} for n in CRITERIA}),
    ],
)
def test_scores_that_can_be_read(answer: str) -> None:
    assert parse(SCORE, answer) == SCORES


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "All criteria: 7",
        json.dumps({**SCORES, "Correctness": 11}),
        json.dumps({**SCORES, "Correctness": 7.5}),
        json.dumps({**SCORES, "Correctness": True}),
        json.dumps({**SCORES, "Correctness": {"reason": "no score"}}),
        json.dumps(dict.fromkeys(list(CRITERIA)[1:], 7)),
        json.dumps(SCORES)[:-1],
        json.dumps(SCORES) + json.dumps({**SCORES, "Completeness": 2}),
    ],
)
def test_scores_that_would_have_to_be_guessed(answer: str) -> None:
    assert parse(SCORE, answer) is None


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("B has sharper images.\nVerdict: A", "A"),
        ("**Verdict:** b.", "B"),
        ("verdict: Tie (A)", "Tie(A)"),
        ("Verdict: Tie(B)\n\nVerdict: Tie(B)", "Tie(B)"),
        ("Verdict: A\nVerdict: B", None),
        ("Verdict: Tie", None),
        ("Verdict: A or B", None),
        ("A is better", None),
        ("", None),
    ],
)
def test_verdicts(answer: str, verdict: str | None) -> None:
    assert parse(COMPARE, answer) == verdict


def test_a_call_of_another_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="no call 'rubric' in OpenING"):
        parse("rubric", "Verdict: A")
