"""CoMM: instructions with images, generated in four ways from a document of steps.

A judge gets one call about the texts in task 1. In the others it gets three: about the document,
for descriptions of its hidden images as the text lets expect them, and about how the images agree
with these. What is shown, the criteria and the scale are the benchmark's; the wording is ours.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue

from inference.agent_prompts.templates import IMAGE
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from . import files
from .benchmark import (
    Answer,
    AnswerStep,
    Benchmark,
    Item,
    ItemMetrics,
    JudgeCall,
    Metrics,
    Values,
    lines_of,
    mean,
    numbered_call,
    pictures,
)
from .comm_items import MAX_IMAGES, PROMPTS, CommItem, Task, load_items
from .judge_text import only_object

TEXTS, DOCUMENT, DESCRIPTIONS, FIDELITY = "texts", "document", "descriptions", "fidelity"
IRS = "irs"
_MAX_EDGE, _MAX_SCORE = 512, 10  # of images that a judge is shown; of its scale
_COHERENCE = ("style", "entity", "trend", "consistency")
# Task -> the scores of its first call.
SCORES: Mapping[Task, tuple[str, ...]] = {
    1: ("completeness", "text_fidelity"),
    2: (*_COHERENCE, "image_quality"),
    3: (*_COHERENCE, "completeness", "image_quality"),
    4: (*_COHERENCE, "completeness", "image_quality"),
}

_MARKER = "<IMAGE>"  # in answers as CoMM's scorer reads them
_RESULTS = "results.json"
_STEP = re.compile(r"\((\d+)\)\s")

_Shown = list[AnswerStep]  # to a judge: a text or an image each


class _Results(BaseModel):
    """An answer as the scorer reads it: texts of steps in one line, and names of images."""

    model_config = ConfigDict(extra="ignore")

    model_output: str
    prediction_image_list: list[str] = []


class CoMM(Benchmark):
    """A task of CoMM; a source of its documents is a group.

    Systems are ranked by how their images fit the text (task 1: their texts the images), the only
    score that the paper's systems differ much in.

    Args:
        source: the file of a split (.pt, .json or .jsonl), or a folder with the one of the test
            split. Its images lie beside it, or in `images` beside it.
    """

    judge_temperature = 1

    def __init__(self, source: Path, task: Task) -> None:
        self._task, self.name = task, f"comm-task{task}"
        self.metric_names = SCORES[task] if task == 1 else (*SCORES[task], IRS)
        self.headline = self.metric_names[-1]
        self._items = load_items(source, task, self.name)
        self.items = [
            Item(name, item.document.dataset_type or "all", item.text(IMAGE), item.input_images)
            for name, item in self._items.items()
        ]

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        official = self._items[item.item_id]
        images = (files.read_image(path, item.item_id) for path in official.input_images)
        if self._task == 1:
            shown = _shown_texts([[next(images) for _ in step] for step in official.input], answer)
            return [_rating_call(TEXTS, SCORES[1], shown or lines_of("(no texts)"))]
        request, answered = _shown_document(official, images, answer)
        answered = answered or lines_of("(empty)")
        document = [*lines_of("Request:"), *request, *lines_of("", "Answer:"), *answered]
        calls = [_rating_call(DOCUMENT, SCORES[self._task], document)]
        made = pictures(answered)
        if not made:
            return [*calls, _fidelity_call([], [])]
        calls.append(_descriptions_call(document, len(pictures(request)), len(made)))
        if isinstance(descriptions := values.get(DESCRIPTIONS), list):
            calls.append(_fidelity_call([str(words) for words in descriptions], made))
        return calls

    def parse(self, call: str, text: str) -> JsonValue:
        """Scores by name, descriptions, or the overall fidelity; None: not without a guess."""
        scores = partial(_scores, names=SCORES[self._task])
        readers: dict[str, Callable[[object], JsonValue]] = {
            **{TEXTS: scores, DOCUMENT: scores},
            **{DESCRIPTIONS: _descriptions, FIDELITY: _fidelity},
        }
        return only_object(text, readers[call])

    def metrics(self, item: Item, values: Values) -> Metrics:
        """Scores in 0..10; all None if one is missing, since the official means skip such items."""
        scores = values.get(TEXTS if self._task == 1 else DOCUMENT)
        found = dict(scores) if isinstance(scores, dict) else {}
        if self._task != 1:
            found[IRS] = values.get(FIDELITY)
        if any(found.get(name) is None for name in self.metric_names):
            return dict.fromkeys(self.metric_names)
        return {name: float(found[name]) for name in self.metric_names}  # type: ignore[arg-type]

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """The means of all items, and of every group if there are several."""
        groups = sorted({item.group for item in self.items})
        numbers = {name: mean(items, name) for name in self.metric_names}
        for group in groups if len(groups) > 1 else ():
            numbers |= {f"{group}/{name}": mean(items, name, group) for name in self.metric_names}
        return numbers

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        """`<root>/<system>/<data_id>_task<N>/results.json` has the request and the answer as texts
        of steps, `(1) Mix the flour. <IMAGE> (2) ...`; the images lie beside it, those of the
        document in `origin/`. The JSON file comes last, so that one that is there is complete.
        """
        path = files.system_folder(root, system)
        for item_id, answer in answers:
            item, folder = self._items[item_id], path / item_id
            first = item.given + 1
            content = {
                "model_input": item.text(_MARKER).replace("\n", " "),
                "model_output": _output(answer, first),
                "input_image_list": _copied(folder, "input", 1, item.input_images),
                "output_gt_image_list": _copied(folder, "output_gt", first, item.reference_images),
                "prediction_image_list": [
                    files.write_image(folder, f"predict_{number}", step.image)
                    for number, step in enumerate(answer, first)
                    if step.image is not None
                ],
            }
            files.write_json(folder / _RESULTS, content)
        return path

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        for file in files.answer_files(source, f"*_task{self._task}/{_RESULTS}"):
            item_id, results = file.parent.name, files.read_answers(file, _Results)
            images = (
                files.read_image(file.with_name(n), item_id) for n in results.prediction_image_list
            )
            yield item_id, tuple(_steps(results.model_output, images))


def _shown_texts(images: Sequence[Sequence[EncodedImage]], answer: Answer) -> _Shown:
    """Task 1: each text with the images of its step, as far as both go."""
    shown: _Shown = []
    for number, (group, step) in enumerate(zip(images, answer, strict=False), 1):
        shown.append(AnswerStep(f"({number}) {step.text}"))
        room = MAX_IMAGES - len(pictures(shown))
        shown += [AnswerStep("", image) for image in group[:room]]
        if len(pictures(shown)) >= MAX_IMAGES:
            break
    return shown


def _shown_document(
    item: CommItem, input_images: Iterator[EncodedImage], answer: Answer
) -> tuple[_Shown, _Shown]:
    """Request and answer, 10 images in all at most; in task 2 the given texts are in place."""
    request = [AnswerStep(item.introduction)]
    steps = list(answer)
    if item.task == 2:
        texts = [" ".join(content.text for content in given) for given in item.input]
        steps = [AnswerStep(t, s.image) for t, s in zip(texts, answer, strict=False)]
    else:
        for number, contents in enumerate(item.input, 1):
            request.append(AnswerStep(f"({number})"))
            for content in contents:
                is_image = content.type == "image"
                request.append(AnswerStep(content.text, next(input_images) if is_image else None))
    shown: _Shown = []
    for number, step in enumerate(steps, item.given + 1):
        shown.append(AnswerStep(f"({number}) {step.text}"))
        shown += [AnswerStep("", image) for image in pictures([step])]
        if len(pictures(request)) + len(pictures(shown)) >= MAX_IMAGES:
            break
    return request, shown


def _rating_call(name: str, scores: Sequence[str], shown: _Shown) -> JudgeCall:
    criteria = "\n".join(f"- {score}: {PROMPTS[score]}" for score in scores)
    form = ", ".join(f'"{score}": 0' for score in scores)
    task = f"{PROMPTS[name]} {PROMPTS['scale']}\n\n{criteria}"
    return _call(name, f"{task}\n\nEnd with one JSON object: {{{form}}}", shown)


def _descriptions_call(document: _Shown, given: int, hidden: int) -> JudgeCall:
    """What the images of the answer, after the given ones, should show."""
    form = ", ".join(f'"{given + number}": "..."' for number in range(1, hidden + 1))
    call = _call(DESCRIPTIONS, f"{PROMPTS[DESCRIPTIONS]} {{{form}}}", document)
    return replace(call, images=call.images[:given])


def _fidelity_call(descriptions: Sequence[str], images: Sequence[EncodedImage]) -> JudgeCall:
    """How the images agree with the descriptions; of either there may be more."""
    shown: _Shown = []
    for number, (words, image) in enumerate(zip_longest(descriptions, images), 1):
        shown.append(AnswerStep(f"Description {number}: {words or '(missing)'}"))
        shown.append(AnswerStep("" if image else "(image missing)", image))
    return _call(FIDELITY, PROMPTS[FIDELITY], shown or lines_of("(no images)"))


def _call(name: str, task: str, shown: _Shown) -> JudgeCall:
    return numbered_call(name, [*lines_of(task, ""), *shown], _reduced)


def _reduced(image: EncodedImage) -> EncodedImage:
    """With an edge of 512 pixels at most, as the protocol shows images."""
    width, height = image.image.size
    scale = max(width, height) / _MAX_EDGE
    if scale <= 1:
        return image
    return EncodedImage.of(image.image.resize((int(width / scale), int(height / scale))))


def _score(value: object) -> float | int | None:
    """A score of the scale; "NA" and null count as 0, as officially. None: it is none."""
    if value is None or value == "NA":
        return 0
    # A bool is an int to isinstance, and no score.
    is_score = type(value) in (int, float) and 0 <= value <= _MAX_SCORE  # type: ignore[operator]
    return value if is_score else None  # type: ignore[return-value]


def _scores(value: object, names: Sequence[str]) -> dict[str, JsonValue] | None:
    if not isinstance(value, dict) or value.keys() != set(names):
        return None
    scores = {name: _score(value[name]) for name in names}
    return None if None in scores.values() else {**scores}


def _fidelity(value: object) -> float | int | None:
    return _score(value["overall"]) if isinstance(value, dict) and "overall" in value else None


def _descriptions(value: object) -> list[JsonValue] | None:
    """The descriptions in the order of their numbers, which must follow on each other."""
    if not isinstance(value, dict) or not value or not all(map(str.isdecimal, value)):
        return None
    by_number = {int(number): words for number, words in value.items()}
    numbers = sorted(by_number)
    if numbers != list(range(numbers[0], numbers[0] + len(value))):
        return None
    words = [by_number[number] for number in numbers]
    return [*words] if all(isinstance(each, str) and each for each in words) else None


def _output(answer: Answer, first: int) -> str:
    """The steps in one line; "(2) " within a text becomes "2) ", or the scorer counts a step."""
    lines = []
    for number, step in enumerate(answer, first):
        text = _STEP.sub(r"\1) ", " ".join(step.text.split()) + " ").strip()
        lines.append(" ".join(filter(None, (f"({number})", text, _MARKER if step.image else ""))))
    return " ".join(lines)


def _copied(folder: Path, name: str, first: int, images: Sequence[Path]) -> list[str]:
    """Copy the images that are there to `origin`; their names."""
    names = []
    for number, path in enumerate(images, first):
        if path.is_file():
            names.append(f"{name}_{number}{path.suffix or '.jpg'}")
            atomic_write(folder / "origin" / names[-1], path.read_bytes())
    return names


def _steps(output: str, images: Iterator[EncodedImage]) -> Iterator[AnswerStep]:
    """The steps of an answer; of several images of a step, each but the first is one of its own.

    Like in the official scorer, markers without an image are dropped, and images without a marker.
    """
    for text in _split_steps(output):
        found = [image for _ in range(text.count(_MARKER)) if (image := next(images, None))]
        words = " ".join(text.replace(_MARKER, " ").split())
        yield AnswerStep(words, found[0] if found else None)
        yield from (AnswerStep("", image) for image in found[1:])


def _split_steps(output: str) -> list[str]:
    """What follows each step's number; a number that does not count on belongs to the text."""
    starts: list[re.Match[str]] = []
    for match in _STEP.finditer(output + " "):
        if not starts or int(match[1]) == int(starts[-1][1]) + 1:
            starts.append(match)
    ends = [match.start() for match in starts[1:]] + [len(output)]
    return [output[match.end() : end] for match, end in zip(starts, ends, strict=True)]
