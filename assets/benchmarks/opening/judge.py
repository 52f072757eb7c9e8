"""What a judge of OpenING is asked, and how its answers are read.

Two protocols: absolute scores of one answer on seven criteria, and a
comparison of two answers in which a tie still leans to a side. The criteria, their order of weight
and their scale are the benchmark's; the wording is ours.
"""

import re
from collections.abc import Sequence
from typing import Literal, get_args

from warehouse import EncodedImage

from ..benchmark import AnswerStep, JudgeCall
from ..judge_answers import json_objects
from .items import OpeningItem

SCORE, COMPARE = "score", "compare"
IMAGE_SIZE = (512, 512)  # in which the protocol shows pictures to a judge

Verdict = Literal["A", "B", "Tie(A)", "Tie(B)"]

# From the one that weighs most to the one that weighs least.
CRITERIA = {
    "Correctness": "Do text and images do what the request asks for, with facts and reasoning that "
    "hold and images that are plausible? A text or an image that is absent counts against it.",
    "Image-Text Coherency": "Does each image show what the text next to it says, and add to it?",
    "Multi-step Consistency": "Do style and the same persons and things persist from image to "
    "image, and do the texts follow from each other?",
    "Content Quality": "Are the images sharp and natural, and is the language without mistakes?",
    "Human Preference Alignment": "Is the text free of anything offensive or harmful, and are the "
    "images pleasant to look at?",
    "Completeness": "Are all the steps there that the request calls for?",
    "Content Richness": "Do the images vary, and is the text detailed without padding?",
}
MAX_SCORE = 10

_CRITERIA_LIST = "\n".join(
    f"{number}. {name}: {question}" for number, (name, question) in enumerate(CRITERIA.items(), 1)
)
_EXAMPLE = "{" + ", ".join(f'"{name}": {{"reason": "...", "score": 0}}' for name in CRITERIA) + "}"
_SCORE_TASK = f"""\
You grade an answer in which texts and images take turns. Read the request and the answer below, \
look at every image, and grade each criterion with an integer from 0 to {MAX_SCORE}: 0 to 2 if it \
fails, 3 to 5 if its faults are plain to see, 6 to 8 if it is good and could be better, 9 or 10 if \
hardly anything could be better.

Criteria, the most important first:
{_CRITERIA_LIST}

End with one JSON object that has all criteria, a short reason before each score:
{_EXAMPLE}"""
_COMPARE_TASK = f"""\
Two systems, A and B, answered the same request with texts and images in turn. Decide whose answer \
is better, whichever is shown first. Read both, look at every image, and weigh these criteria, the \
most important first:
{_CRITERIA_LIST}

End with one line of one of these forms, the last two if the answers are about equally good (then \
the letter says which you would take if you had to):
Verdict: A
Verdict: B
Verdict: Tie(A)
Verdict: Tie(B)"""
_VERDICT = re.compile(
    r"^[\s*_#>]*verdict[\s*_]*:[\s*_]*(.+?)[\s*_.]*$", re.IGNORECASE | re.MULTILINE
)


def score_call(
    item: OpeningItem, input_images: Sequence[EncodedImage], answer: Sequence[AnswerStep]
) -> JudgeCall:
    """The call that grades an answer on all criteria; `input_images` are the item's, in order."""
    call = _CallText()
    call.add_input(item, input_images)
    call.add_answer("Answer", answer)
    return call.build(SCORE, _SCORE_TASK)


def compare_call(
    item: OpeningItem,
    input_images: Sequence[EncodedImage],
    answer_a: Sequence[AnswerStep],
    answer_b: Sequence[AnswerStep],
) -> JudgeCall:
    """The call that compares two answers to an item."""
    call = _CallText()
    call.add_input(item, input_images)
    call.add_answer("Answer of A", answer_a)
    call.add_answer("Answer of B", answer_b)
    return call.build(COMPARE, _COMPARE_TASK)


def parse(name: str, text: str) -> dict[str, int] | Verdict | None:
    """A judge's answer to the call of that name: criterion -> score in 0..10, or a verdict.

    None if it cannot be read without a guess: a criterion without an integer of the scale, no
    verdict, or verdicts that contradict each other. ValueError: no call has this name.
    """
    if name == SCORE:
        return parse_scores(text)
    if name == COMPARE:
        return parse_verdict(text)
    raise ValueError(f"no call {name!r} in OpenING: {SCORE} or {COMPARE}")


def parse_scores(text: str) -> dict[str, int] | None:
    """The score of every criterion; None unless the text has one object with all of them."""
    found = [scores for value in json_objects(text) if (scores := _scores(value)) is not None]
    return found[0] if len(found) == 1 else None


def parse_verdict(text: str) -> Verdict | None:
    """The verdict; None unless the verdict lines agree on one of the four."""
    lines = {re.sub(r"\s", "", line).upper() for line in _VERDICT.findall(text)}
    verdicts: dict[str, Verdict] = {verdict.upper(): verdict for verdict in get_args(Verdict)}
    return verdicts.get(lines.pop()) if len(lines) == 1 else None


class _CallText:
    """Texts and the pictures that they name, numbered in order."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._images: list[EncodedImage] = []

    def add_input(self, item: OpeningItem, images: Sequence[EncodedImage]) -> None:
        if len(images) != len(item.input_images):
            raise ValueError(
                f"item {item.total_uid} has {len(item.input_images)} pictures, not {len(images)}"
            )
        rest = iter(images)
        self._lines.append("Request:")
        for part in item.input:
            self._add(part.plain_text, next(rest) if part.image else None)

    def add_answer(self, title: str, answer: Sequence[AnswerStep]) -> None:
        self._lines += ["", f"{title}:"]
        if not answer:
            self._lines.append("(empty)")
        for step in answer:
            self._add(step.text, step.image)

    def build(self, name: str, task: str) -> JudgeCall:
        return JudgeCall(name, "\n".join([task, "", *self._lines]), tuple(self._images))

    def _add(self, text: str, image: EncodedImage | None) -> None:
        if image is not None:
            self._images.append(EncodedImage.of(image.image.resize(IMAGE_SIZE)))
            text = f"{text} [image {len(self._images)}]".lstrip()
        self._lines.append(text)


def _scores(value: object) -> dict[str, int] | None:
    if not isinstance(value, dict) or value.keys() != CRITERIA.keys():
        return None
    scores: dict[str, int] = {}
    for name in CRITERIA:
        entry = value[name]
        score = entry.get("score") if isinstance(entry, dict) else entry
        # A bool is an int to isinstance, and no score.
        if type(score) is not int or not 0 <= score <= MAX_SCORE:
            return None
        scores[name] = score
    return scores
