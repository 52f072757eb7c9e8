"""CoMM: instructions with images, generated in four ways from a document of steps.

A judge gets one call about the texts in task 1. In the others it gets three: about the document,
for descriptions of its hidden images as the text lets expect them, and about how the images agree
with these. What is shown, the criteria and the scale are the benchmark's; the wording is ours.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    mean,
)
from .judge_text import only_object, read_prompts

Task = Literal[1, 2, 3, 4]

TEXTS, DOCUMENT, DESCRIPTIONS, FIDELITY = "texts", "document", "descriptions", "fidelity"
IRS = "irs"
_MAX_IMAGES, _MAX_EDGE, _MAX_SCORE = 10, 512, 10  # images that a judge is shown, and their size
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

_Shown = list[str | EncodedImage]  # to a judge, a line each


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

    @property
    def topic(self) -> str:
        summary = next((content.text for content in self.summary_info if content.text), "")
        title = " ".join((self.title or "").split()) or summary or self.data_id
        return escape_tags(title)


class _Results(BaseModel):
    """An answer as the scorer reads it: texts of steps in one line, and names of images."""

    model_config = ConfigDict(extra="ignore")

    model_output: str
    prediction_image_list: list[str] = []


@dataclass(frozen=True)
class _CommItem:
    """A document, and what of it a system is given in a task.

    Args:
        folder: where the documents' images are.
    """

    document: _Document
    task: Task
    folder: Path

    @property
    def item_id(self) -> str:
        """As folders of answers are named: `17_task3`."""
        return f"{self.document.data_id}_task{self.task}"

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
    def has_use(self) -> bool:
        """Whether the protocol has a use for it.

        It has none in task 1 for documents without images; in task 3 for those of a single step,
        without an image in the second half, or with as many in the first as a judge is shown.
        """
        steps, given = self.document.step_info, self.given
        if self.task == 3:
            images = len(_images_of(steps[:given])), len(_images_of(steps[given:]))
            return given > 0 and images[0] < _MAX_IMAGES and images[1] > 0
        return self.task != 1 or bool(_images_of(steps))

    @property
    def input_images(self) -> tuple[Path, ...]:
        return self.files(self.input)

    @property
    def reference_images(self) -> tuple[Path, ...]:
        """The document's images that a system is to make; they need not be there."""
        return () if self.task == 1 else self.files(self.document.step_info[self.given :])

    @property
    def introduction(self) -> str:
        """The first line of what a system is asked."""
        return _PROMPTS[f"task_{self.task}"].format(title=self.document.topic)

    def text(self, marker: str) -> str:
        """What a system is asked, `marker` in the place of each image."""
        lines = [
            " ".join(marker if c.type == "image" else escape_tags(c.text) for c in step)
            for step in self.input
        ]
        numbered = [f"({number}) {line}".rstrip() for number, line in enumerate(lines, 1)]
        ending = _PROMPTS.get(f"task_{self.task}_ending")
        return "\n".join(filter(None, (self.introduction, *numbered, ending)))

    def files(self, steps: _Steps) -> tuple[Path, ...]:
        """The files of the images of some steps."""
        return tuple(self._file(content.image_path or "") for content in _images_of(steps))

    def _file(self, name: str) -> Path:
        path = self.folder / name
        # Paths may count from the folder above, as in `images/a.jpg`.
        return path if path.is_file() else self.folder.parent / name


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
        self._items = _load(source, task, self.name)
        self.items = [
            Item(name, item.document.dataset_type or "all", item.text(IMAGE), item.input_images)
            for name, item in self._items.items()
        ]

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        official = self._items[item.item_id]
        images = (files.read_image(path, item.item_id) for path in official.input_images)
        if self._task == 1:
            shown = _shown_texts([[next(images) for _ in step] for step in official.input], answer)
            return [_rating_call(TEXTS, SCORES[1], shown or ["(no texts)"])]
        request, answered = _shown_document(official, images, answer)
        document = ["Request:", *request, "", "Answer:", *(answered or ["(empty)"])]
        calls = [_rating_call(DOCUMENT, SCORES[self._task], document)]
        made = _images(answered)
        if not made:
            return [*calls, _fidelity_call([], [])]
        calls.append(_descriptions_call(document, len(_images(request)), len(made)))
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


def _load(source: Path, task: Task, benchmark: str) -> dict[str, _CommItem]:
    """The items of a task, in the file's order."""
    path = _data_file(source)
    images = path.parent / "images"
    folder = images if images.is_dir() else path.parent
    documents = files.parse_rows(path, read_documents(path), _Document)
    items = [item for each in documents if (item := _CommItem(each, task, folder)).has_use]
    found = files.by_id(path, benchmark, items, lambda item: item.item_id)
    pictures = (
        (item.item_id, content.image_path or content.url or "without path or URL", file)
        for item in items
        for content, file in zip(_images_of(item.input), item.input_images, strict=True)
    )
    hint = f"download the images as CoMM's download_images.py does into {images}"
    files.check_pictures(path, pictures, hint)
    return found


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
        shown += [f"({number}) {step.text}", *group[: _MAX_IMAGES - len(_images(shown))]]
        if len(_images(shown)) >= _MAX_IMAGES:
            break
    return shown


def _shown_document(
    item: _CommItem, input_images: Iterator[EncodedImage], answer: Answer
) -> tuple[_Shown, _Shown]:
    """Request and answer, 10 images in all at most; in task 2 the given texts are in place."""
    request: _Shown = [item.introduction]
    steps = list(answer)
    if item.task == 2:
        texts = [" ".join(content.text for content in given) for given in item.input]
        steps = [AnswerStep(t, s.image) for t, s in zip(texts, answer, strict=False)]
    else:
        for number, contents in enumerate(item.input, 1):
            request.append(f"({number})")
            request += [next(input_images) if c.type == "image" else c.text for c in contents]
    shown: _Shown = []
    for number, step in enumerate(steps, item.given + 1):
        shown += [f"({number}) {step.text}", *([step.image] if step.image else [])]
        if len(_images(request)) + len(_images(shown)) >= _MAX_IMAGES:
            break
    return request, shown


def _rating_call(name: str, scores: Sequence[str], shown: _Shown) -> JudgeCall:
    criteria = "\n".join(f"- {score}: {_PROMPTS[score]}" for score in scores)
    form = ", ".join(f'"{score}": 0' for score in scores)
    task = f"{_PROMPTS[name]} {_PROMPTS['scale']}\n\n{criteria}"
    return _call(name, f"{task}\n\nEnd with one JSON object: {{{form}}}", shown)


def _descriptions_call(document: _Shown, given: int, hidden: int) -> JudgeCall:
    """What the images of the answer, after the given ones, should show."""
    form = ", ".join(f'"{given + number}": "..."' for number in range(1, hidden + 1))
    call = _call(DESCRIPTIONS, f"{_PROMPTS[DESCRIPTIONS]} {{{form}}}", document)
    return JudgeCall(call.name, call.text, call.images[:given])


def _fidelity_call(descriptions: Sequence[str], images: Sequence[EncodedImage]) -> JudgeCall:
    """How the images agree with the descriptions; of either there may be more."""
    shown: _Shown = []
    for number, (words, image) in enumerate(zip_longest(descriptions, images), 1):
        shown += [f"Description {number}: {words or '(missing)'}", image or "(image missing)"]
    return _call(FIDELITY, _PROMPTS[FIDELITY], shown or ["(no images)"])


def _call(name: str, task: str, shown: _Shown) -> JudgeCall:
    """The task, then what is shown, a line each, images by their numbers."""
    lines, images = [task, ""], list[EncodedImage]()
    for part in shown:
        if isinstance(part, EncodedImage):
            images.append(_reduced(part))
            part = f"[image {len(images)}]"
        lines.append(part)
    return JudgeCall(name, "\n".join(lines), tuple(images))


def _images(shown: _Shown) -> list[EncodedImage]:
    return [part for part in shown if isinstance(part, EncodedImage)]


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
