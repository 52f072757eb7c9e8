"""What a judge of CoMM is asked, and how its answers are read.

Task 1 has one call about the texts. The others have three: about the document, for descriptions of
its hidden images as the text lets expect them, and about how the images agree with these. What is
shown, the criteria and the scale are the benchmark's; the wording is ours.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pydantic import JsonValue

from warehouse import EncodedImage

from ..benchmark import Answer, AnswerStep, JudgeCall
from ..json_answers import json_objects
from .items import MAX_IMAGES, CommItem, Content, Task

TEXTS, DOCUMENT, DESCRIPTIONS, FIDELITY = "texts", "document", "descriptions", "fidelity"
MAX_SCORE, MAX_EDGE = 10, 512
IRS = "irs"
COHERENCE = ("style", "entity", "trend", "consistency")
# Task -> the scores of its first call.
SCORES: Mapping[Task, tuple[str, ...]] = {
    1: ("completeness", "text_fidelity"),
    2: (*COHERENCE, "image_quality"),
    3: (*COHERENCE, "completeness", "image_quality"),
    4: (*COHERENCE, "completeness", "image_quality"),
}

_QUESTIONS = {
    "style": "Do the images of the answer share one style?",
    "entity": "Do persons and things look the same in every image of the answer?",
    "trend": "Does the change from image to image follow what the text tells?",
    "consistency": "How consistent is the series of images as a whole?",
    "completeness": "Does the answer cover its topic? Consider whether texts or images are missing "
    "and whether the two complement each other.",
    "image_quality": "Do the images of the answer look real, with whole objects, in sharp detail "
    "and well composed?",
    "text_fidelity": "How true are the texts to the images, and how well do they serve as the text "
    "that goes with them?",
}
_SCALE = (
    f"Give each criterion a number from 0 to {MAX_SCORE}: 0 to 3 for grave faults, 4 to 7 for "
    f'small ones, 8 to {MAX_SCORE} if it is met throughout; "NA" where there is nothing to rate.'
)
_TEXTS_TASK = "A system was given a series of images and wrote the text of each. Rate its texts."
_DOCUMENT_TASK = (
    "A system answered a request with texts and images. Read the request and the answer below, "
    "look at every image, and rate the answer."
)
_DESCRIPTIONS_TASK = """\
A system answered a request with texts and images. The images of its answer are hidden; a mark \
such as [image 2] shows where each was. For each mark in the answer say in a few sentences what \
the image there should show, so that it illustrates the text around it and the document flows.

End with one JSON object, the number of the mark before each description: """
_FIDELITY_TASK = f"""\
Below are descriptions of images, each followed by the image that should match it. Rate how well \
each image agrees with its description, from 0 to {MAX_SCORE}: 0 to 3 if it misses what matters, \
4 to 7 if it has small faults, 8 to {MAX_SCORE} if it agrees throughout. Where the description or \
the image is missing, the rating is 0. Then rate all of them together on the same scale.

End with one JSON object: {{"images": [0], "overall": 0}}"""

Shown = list[str | EncodedImage]


@dataclass(frozen=True)
class Document:
    """What of an item and its answer a judge is shown: at most 10 images in all."""

    request: Shown
    answer: Shown

    @property
    def answer_images(self) -> list[EncodedImage]:
        return _images(self.answer)

    @property
    def parts(self) -> Shown:
        return ["Request:", *self.request, "", "Answer:", *(self.answer or ["(empty)"])]


def document(item: CommItem, input_images: Iterator[EncodedImage], answer: Answer) -> Document:
    """The document that a judge of tasks 2 to 4 reads; in task 2 the given texts are in place."""
    request: Shown = [item.introduction]
    steps = list(answer)
    if item.task == 2:
        steps = [
            AnswerStep(_text(given), step.image)
            for given, step in zip(item.input, answer, strict=False)
        ]
    else:
        for number, contents in enumerate(item.input, 1):
            request.append(f"({number})")
            request += [next(input_images) if c.type == "image" else c.text for c in contents]
    shown: Shown = []
    for number, step in enumerate(steps, item.given + 1):
        shown += [f"({number}) {step.text}", *([step.image] if step.image else [])]
        if len(_images(request)) + len(_images(shown)) >= MAX_IMAGES:
            break
    return Document(request, shown)


def texts_call(images: Sequence[Sequence[EncodedImage]], answer: Answer) -> JudgeCall:
    """Task 1: each text with the images of its step, as far as both go."""
    shown: Shown = []
    for number, (group, step) in enumerate(zip(images, answer, strict=False), 1):
        shown += [f"({number}) {step.text}", *group[: MAX_IMAGES - len(_images(shown))]]
        if len(_images(shown)) >= MAX_IMAGES:
            break
    return _call(TEXTS, _rating_task(_TEXTS_TASK, SCORES[1]), shown or ["(no texts)"])


def document_call(shown: Document, task: Task) -> JudgeCall:
    """Coherence and quality of the images, and in tasks 3 and 4 completeness."""
    return _call(DOCUMENT, _rating_task(_DOCUMENT_TASK, SCORES[task]), shown.parts)


def descriptions_call(shown: Document) -> JudgeCall:
    """What the hidden images of the answer should show."""
    first = len(_images(shown.request)) + 1
    hidden = range(first, first + len(shown.answer_images))
    form = ", ".join(f'"{number}": "..."' for number in hidden)
    call = _call(DESCRIPTIONS, f"{_DESCRIPTIONS_TASK}{{{form}}}", shown.parts)
    return JudgeCall(call.name, call.text, call.images[: first - 1])


def fidelity_call(descriptions: Sequence[str], images: Sequence[EncodedImage]) -> JudgeCall:
    """How the images agree with the descriptions; of either there may be more."""
    shown: Shown = []
    for number, (words, image) in enumerate(zip_longest(descriptions, images), 1):
        shown += [f"Description {number}: {words or '(missing)'}", image or "(image missing)"]
    return _call(FIDELITY, _FIDELITY_TASK, shown or ["(no images)"])


def parse(call: str, text: str, task: Task) -> JsonValue:
    """Scores by name, descriptions, or the overall fidelity; None: not without a guess."""
    readers: dict[str, Callable[[object], JsonValue]] = {
        TEXTS: lambda value: _scores(value, SCORES[task]),
        DOCUMENT: lambda value: _scores(value, SCORES[task]),
        DESCRIPTIONS: _descriptions,
        FIDELITY: _fidelity,
    }
    if call not in readers:
        raise ValueError(f"no call {call!r} in CoMM: one of {', '.join(readers)}")
    found = [read for value in json_objects(text) if (read := readers[call](value)) is not None]
    return found[0] if len(found) == 1 else None


def reduce_image(image: EncodedImage) -> EncodedImage:
    """With an edge of 512 pixels at most, as the protocol shows images."""
    width, height = image.image.size
    scale = max(width, height) / MAX_EDGE
    if scale <= 1:
        return image
    return EncodedImage.of(image.image.resize((int(width / scale), int(height / scale))))


def _rating_task(task: str, scores: Sequence[str]) -> str:
    criteria = "\n".join(f"- {name}: {_QUESTIONS[name]}" for name in scores)
    form = ", ".join(f'"{name}": 0' for name in scores)
    return f"{task} {_SCALE}\n\n{criteria}\n\nEnd with one JSON object: {{{form}}}"


def _images(shown: Shown) -> list[EncodedImage]:
    return [part for part in shown if isinstance(part, EncodedImage)]


def _text(step: Sequence[Content]) -> str:
    return " ".join(content.text for content in step)


def _call(name: str, task: str, shown: Shown) -> JudgeCall:
    """The task, then what is shown, a line each, images by their numbers."""
    lines, images = [task, ""], list[EncodedImage]()
    for part in shown:
        if isinstance(part, EncodedImage):
            images.append(reduce_image(part))
            lines.append(f"[image {len(images)}]")
        else:
            lines.append(part)
    return JudgeCall(name, "\n".join(lines), tuple(images))


def _is_score(value: object) -> bool:
    # A bool is an int to isinstance, and no score. "NA" and null count as 0, as officially.
    if value is None or value == "NA":
        return True
    return type(value) in (int, float) and 0 <= value <= MAX_SCORE  # type: ignore[operator]


def _scores(value: object, names: Sequence[str]) -> dict[str, JsonValue] | None:
    if not isinstance(value, dict) or value.keys() != set(names):
        return None
    return (
        {name: _number(value[name]) for name in names}
        if all(map(_is_score, value.values()))
        else None
    )


def _fidelity(value: object) -> float | int | None:
    if not isinstance(value, dict) or not _is_score(value.get("overall", "")):
        return None
    return _number(value["overall"])


def _number(value: object) -> float | int:
    return value if isinstance(value, int | float) else 0


def _descriptions(value: object) -> list[JsonValue] | None:
    """The descriptions in the order of their numbers, which must follow on each other."""
    if not isinstance(value, dict) or not value or not all(map(str.isdecimal, value)):
        return None
    by_number: Mapping[int, object] = {int(number): words for number, words in value.items()}
    numbers = sorted(by_number)
    if numbers != list(range(numbers[0], numbers[0] + len(value))):
        return None
    words = [by_number[number] for number in numbers]
    return [str(w) for w in words] if all(isinstance(w, str) and w for w in words) else None
