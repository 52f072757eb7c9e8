"""What a judge of UEval is asked, and how its answers are read.

One call a criterion: it is met, not met, or the judge is not sure. What is shown is the
benchmark's; the wording is ours.
"""

from collections.abc import Iterable
from typing import Literal

from ..benchmark import Answer, JudgeCall
from ..json_answers import json_objects
from .items import UEvalItem
from .layout import answer_images, answer_text

Verdict = bool | Literal["not sure"]

_TEXT_TASK = """\
You check one criterion on the text that a system wrote in answer to a question. The criterion is \
met if the text fulfils every part of it, without mistakes."""
_IMAGE_TASK = """\
You check one criterion on the images that a system made in answer to a question; they are shown \
in the order in which it made them. The criterion is met if the images fulfil every part of it. \
What it asks for must be depicted: words written inside an image do not stand for it."""
_OPEN_NOTE = """\
Where the criterion compares images with the steps of the text, an image agrees with its step if \
it shows the main action of that step; it may leave out side actions and details."""
_CLOSED_NOTE = "If any image is nothing but text, the criterion is not met."
_FORM = """\
Answer with a JSON object and nothing else: {"criteria_met": true} if the criterion is met, \
{"criteria_met": false} if any part of it is not, {"criteria_met": "not sure"} if what you are \
shown does not suffice to decide."""
_WORDS: dict[str, Verdict] = {
    **dict.fromkeys(("true", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "no", "n", "0"), False),
    **dict.fromkeys(("not sure", "unsure", "unknown"), "not sure"),
}


def text_name(number: int) -> str:
    """The call about a text criterion, numbered from 1."""
    return f"text-{number}"


def image_name(number: int) -> str:
    """The call about an image criterion, numbered from 1."""
    return f"image-{number}"


def criterion_calls(item: UEvalItem, answer: Answer) -> list[JudgeCall]:
    """A call for every criterion, those of the text first."""
    text, images = answer_text(answer) or "(none)", answer_images(answer)
    shown = "" if images else "\n\nImages: (none)"
    if item.is_open:
        image_parts = [_IMAGE_TASK, _OPEN_NOTE, _FORM, _block("Question", item.prompt)]
        image_parts.append(_block("Text of the answer", text) + shown)
    else:
        image_parts = [_IMAGE_TASK, _CLOSED_NOTE, _FORM, _block("Question", item.prompt) + shown]
    text_parts = [_TEXT_TASK, _FORM, _block("Question", item.prompt), _block("Text", text)]
    return [
        *(
            JudgeCall(text_name(number), _joined(text_parts, criterion))
            for number, criterion in enumerate(item.text_rubrics, 1)
        ),
        *(
            JudgeCall(image_name(number), _joined(image_parts, criterion), images)
            for number, criterion in enumerate(item.image_rubrics, 1)
        ),
    ]


def parse_verdict(text: str) -> Verdict | None:
    """The verdict; None unless the objects with one agree on one that is known."""
    found = {
        _verdict(value["criteria_met"])
        for value in json_objects(text)
        if isinstance(value, dict) and "criteria_met" in value
    }
    return found.pop() if len(found) == 1 else None


def _verdict(value: object) -> Verdict | None:
    if isinstance(value, bool):
        return value
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def _block(title: str, content: str) -> str:
    return f"{title}:\n{content}"


def _joined(parts: Iterable[str], criterion: str) -> str:
    # The criterion comes last, so that all calls of an item share a prefix that can be cached.
    return "\n\n".join([*parts, _block("Criterion", criterion)])
