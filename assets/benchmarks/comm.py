"""CoMM: instructions with images, generated in four ways from a document of steps.

A judge gets one call about the texts in task 1. In the others it gets three: about the document,
for descriptions of its hidden images as the text lets expect them, and about how the images agree
with these. What is shown, the criteria and the scale are the benchmark's; the wording is ours.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from inference.agent_prompts.templates import IMAGE, escape_tags
from schemas.errors import FoundryError
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from ..curation.comm import read_documents
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
    numbered,
    only_object,
    pictures,
    read_prompts,
    unique,
)

Task = Literal[1, 2, 3, 4]
TEXTS, DOCUMENT, DESCRIPTIONS, FIDELITY = "texts", "document", "descriptions", "fidelity"
IRS = "irs"
_MAX_IMAGES = 10  # that a judge is shown
_MAX_EDGE, _MAX_SCORE = 512, 10  # of images that a judge is shown; of its scale
_COHERENCE = ("style", "entity", "trend", "consistency")
# Task -> the scores of its first call.
SCORES: Mapping[Task, tuple[str, ...]] = {
    1: ("completeness", "text_fidelity"),
    2: (*_COHERENCE, "image_quality"),
    3: (*_COHERENCE, "completeness", "image_quality"),
    4: (*_COHERENCE, "completeness", "image_quality"),
}
_PROMPTS = read_prompts("comm")

_MARKER = "<IMAGE>"  # in answers as CoMM's scorer reads them
_RESULTS = "results.json"
_STEP = re.compile(r"\((\d+)\)\s")

_Shown = list[AnswerStep]  # to a judge: a text or an image each


class _Content(BaseModel):
    """A text, or an image: a file below the image folder, or known only by its URL."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["text", "image"]
    content: str | None = None
    url: str | None = None
    image_path: str | None = None

    @property
    def text(self) -> str:
        """The words of a text in one line; empty for an image."""
        return " ".join((self.content or "").split()) if self.type == "text" else ""


_Steps = Sequence[Sequence[_Content]]


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    data_id: str = Field(pattern=r"^[^/\\]+$")
    dataset_type: str | None = None
    title: str | None = None
    summary_info: list[_Content] = []
    step_info: tuple[tuple[_Content, ...], ...] = Field(min_length=1)


class _Results(BaseModel):
    """An answer as the scorer reads it: texts of steps in one line, and names of images."""

    model_output: str
    prediction_image_list: list[str] = []


@dataclass(frozen=True)
class _CommItem:
    """A document, and what of it a system is given in a task."""

    document: _Document
    task: Task

    @property
    def given(self) -> int:
        """How many of the steps a system gets in full: in task 3 the first half."""
        return len(self.document.step_info) // 2 if self.task == 3 else 0

    @property
    def input(self) -> list[list[_Content]]:
        """The contents that a system gets, a list a step."""
        steps = self.document.step_info
        if self.task == 3:
            return [list(step) for step in steps[: self.given]]
        wanted = {1: "image", 2: "text"}.get(self.task)
        return [[c for c in step if c.type == wanted] for step in steps] if wanted else []

    @property
    def output(self) -> _Steps:
        """The steps whose images a system is to make."""
        return () if self.task == 1 else self.document.step_info[self.given :]

    @property
    def has_use(self) -> bool:
        """Whether the protocol has a use for it.

        It has none in task 1 for documents without images; in task 3 for those of a single step,
        without an image in the second half, or with as many in the first as a judge is shown.
        """
        if self.task == 3:
            images = len(_images_of(self.input)), len(_images_of(self.output))
            return self.given > 0 and images[0] < _MAX_IMAGES and images[1] > 0
        return self.task != 1 or bool(_images_of(self.input))

    @property
    def introduction(self) -> str:
        """The first line of what a system is asked."""
        document = self.document
        summary = next((each.text for each in document.summary_info if each.text), "")
        title = " ".join((document.title or "").split()) or summary or document.data_id
        return _PROMPTS[f"task_{self.task}"].format(title=escape_tags(title))

    def text(self, marker: str) -> str:
        """What a system is asked, `marker` in the place of each image."""
        lines = [
            " ".join(marker if c.type == "image" else escape_tags(c.text) for c in step)
            for step in self.input
        ]
        steps = [f"({number}) {line}".rstrip() for number, line in enumerate(lines, 1)]
        ending = _PROMPTS.get(f"task_{self.task}_ending")
        return "\n".join(filter(None, (self.introduction, *steps, ending)))


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
        path = _data_file(source)
        images = path.parent / "images"
        self._folder = images if images.is_dir() else path.parent
        documents = files.parse_rows(path, read_documents(path), _Document)
        official = [item for each in documents if (item := _CommItem(each, task)).has_use]
        self.items = unique(path, self.name, map(self._item, official))
        named = (
            (item.item_id, content.image_path or content.url or "without path or URL", file)
            for item in self.items
            for content, file in zip(_images_of(item.official.input), item.image_files, strict=True)
        )
        hint = f"download the images as CoMM's download_images.py does into {images}"
        files.check_pictures(path, named, hint)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        official: _CommItem = item.official
        images = (files.read_image(path, item.item_id) for path in item.image_files)
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

    def write_answer(self, folder: Path, item: Item, answer: Answer) -> None:
        """`<data_id>_task<N>/results.json` has the request and the answer as texts of steps,
        `(1) Mix the flour. <IMAGE> (2) ...`; the images lie beside it, those of the document in
        `origin/`.
        """
        folder, official = folder / item.item_id, item.official
        first = official.given + 1
        references = self._files(official.output)  # which need not be there
        content = {
            "model_input": official.text(_MARKER).replace("\n", " "),
            "model_output": _output(answer, first),
            "input_image_list": _copied(folder, "input", 1, item.image_files),
            "output_gt_image_list": _copied(folder, "output_gt", first, references),
            "prediction_image_list": [
                files.write_image(folder, f"predict_{number}", step.image)
                for number, step in enumerate(answer, first)
                if step.image is not None
            ],
        }
        files.write_json(folder / _RESULTS, content)

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        for file in files.answer_files(source, f"*_task{self._task}/{_RESULTS}"):
            item_id, results = file.parent.name, files.read_answers(file, _Results)
            images = (
                files.read_image(file.with_name(n), item_id) for n in results.prediction_image_list
            )
            yield item_id, tuple(_steps(results.model_output, images))

    def _item(self, official: _CommItem) -> Item:
        """Its id is as folders of answers are named: `17_task3`."""
        document, images = official.document, self._files(official.input)
        name, group = f"{document.data_id}_task{self._task}", document.dataset_type or "all"
        return Item(name, group, official.text(IMAGE), images, official)

    def _files(self, steps: _Steps) -> tuple[Path, ...]:
        """Of the images of some steps; paths may count from the folder above: `images/a.jpg`."""
        names = [content.image_path or "" for content in _images_of(steps)]
        pairs = [(self._folder / name, self._folder.parent / name) for name in names]
        return tuple(path if path.is_file() else above for path, above in pairs)


def _data_file(source: Path) -> Path:
    if source.is_file():
        return source
    suffixes = (".pt", ".pth", ".json", ".jsonl")
    paths = sorted(p for p in source.glob("*") if p.suffix in suffixes) if source.is_dir() else []
    found = [path for path in paths if "test" in path.stem] or paths
    if len(found) != 1:
        raise FoundryError(
            f"{source}: has {len(found)} files of CoMM's documents; name the one of the test split"
        )
    return found[0]


def _images_of(steps: _Steps) -> list[_Content]:
    return [content for step in steps for content in step if content.type == "image"]


def _shown_texts(images: Sequence[Sequence[EncodedImage]], answer: Answer) -> _Shown:
    """Task 1: each text with the images of its step, as far as both go."""
    shown: _Shown = []
    for number, (group, step) in enumerate(zip(images, answer, strict=False), 1):
        shown.append(AnswerStep(f"({number}) {step.text}"))
        room = _MAX_IMAGES - len(pictures(shown))
        shown += [AnswerStep("", image) for image in group[:room]]
        if len(pictures(shown)) >= _MAX_IMAGES:
            break
    return shown


def _shown_document(
    item: _CommItem, input_images: Iterator[EncodedImage], answer: Answer
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
        if len(pictures(request)) + len(pictures(shown)) >= _MAX_IMAGES:
            break
    return request, shown


def _rating_call(name: str, scores: Sequence[str], shown: _Shown) -> JudgeCall:
    criteria = "\n".join(f"- {score}: {_PROMPTS[score]}" for score in scores)
    form = ", ".join(f'"{score}": 0' for score in scores)
    task = f"{_PROMPTS[name]} {_PROMPTS['scale']}\n\n{criteria}"
    read = partial(_scores, names=scores)
    return _call(name, f"{task}\n\nEnd with one JSON object: {{{form}}}", shown, read)


def _descriptions_call(document: _Shown, given: int, hidden: int) -> JudgeCall:
    """What the images of the answer, after the given ones, should show."""
    form = ", ".join(f'"{given + number}": "..."' for number in range(1, hidden + 1))
    call = _call(DESCRIPTIONS, f"{_PROMPTS[DESCRIPTIONS]} {{{form}}}", document, _descriptions)
    return replace(call, images=call.images[:given])


def _fidelity_call(descriptions: Sequence[str], images: Sequence[EncodedImage]) -> JudgeCall:
    """How the images agree with the descriptions; of either there may be more."""
    shown: _Shown = []
    for number, (words, image) in enumerate(zip_longest(descriptions, images), 1):
        shown.append(AnswerStep(f"Description {number}: {words or '(missing)'}"))
        shown.append(AnswerStep("" if image else "(image missing)", image))
    return _call(FIDELITY, _PROMPTS[FIDELITY], shown or lines_of("(no images)"), _fidelity)


def _call(name: str, task: str, shown: _Shown, read: Callable[[object], JsonValue]) -> JudgeCall:
    text, images = numbered([*lines_of(task, ""), *shown], _reduced)
    return JudgeCall(name, text, partial(only_object, read=read), images)


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
