"""OpENING: open-ended interleaved answers, graded on seven criteria (GPT-score of the paper).

Two protocols: absolute scores of one answer, and a comparison of two answers in which a tie still
leans to a side. The criteria, their order of weight and their scale are the benchmark's; the
wording is ours.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from string import Template
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from schemas.errors import FoundryError
from warehouse import EncodedImage

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
    labelled,
    lines_of,
    mean,
    numbered,
    only_object,
    read_prompts,
    unique,
)

Verdict = Literal["A", "B", "Tie(A)", "Tie(B)"]

SCORE, COMPARE, OVERALL = "score", "compare", "overall"
CRITERIA = (
    "Correctness",
    "Image-Text Coherency",
    "Multi-step Consistency",
    "Content Quality",
    "Human Preference Alignment",
    "Completeness",
    "Content Richness",
)
MAX_SCORE = 10
# Topic -> how many tasks it has; tasks are numbered from 1 (56 in all).
TASKS_PER_TOPIC = dict(
    enumerate((2, 3, 2, 2, 4, 2, 5, 2, 2, 5, 4, 1, 1, 3, 2, 2, 3, 2, 3, 2, 2, 1, 1), 1)
)
SUFFIX = "_output"  # of folders of answers
_IMAGE_SIZE = (512, 512)  # in which the protocol shows pictures to a judge
_MARKER = re.compile(r"[ \t]*(?:<BEGIN>|<image>)[ \t]*")  # of the files; no part of what is asked

_PROMPTS = read_prompts("opening")
_TEXTS = {
    "criteria": "\n".join(f"{n}. {name}: {_PROMPTS[name]}" for n, name in enumerate(CRITERIA, 1)),
    "form": "{"
    + ", ".join(f'"{name}": {{"reason": "...", "score": 0}}' for name in CRITERIA)
    + "}",
}


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Part(_Model):
    """A text and the picture after it, a path relative to the data file, if there is one."""

    text: str
    image: str | None

    @property
    def plain_text(self) -> str:
        """The text without the files' markers."""
        return _MARKER.sub(" ", self.text).strip()


class _Input(_Model):
    """What is asked."""

    input: tuple[_Part, ...] = Field(min_length=1)


class _Output(_Model):
    """What people answered, or a system."""

    output: tuple[_Part, ...]


class _AnswerFile(BaseModel):
    conversations: tuple[Any, _Output]


class _OpeningItem(_Model):
    """One line of an official data file."""

    total_uid: str
    meta_task_id: str = Field(pattern=r"^\d{1,2}$")
    meta_task_name: str
    subtask_id: str = Field(pattern=r"^\d{1,2}$")
    subtask_name: str
    data_id: str = Field(pattern=r"^\d{1,3}$")
    conversations: tuple[_Input, _Output]

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        topic, task = int(self.meta_task_id), int(self.subtask_id)
        if not 1 <= task <= TASKS_PER_TOPIC.get(topic, 0):
            raise ValueError(f"no task {task} of a topic {topic} exists in OpENING")
        if self.total_uid != f"{topic:02d}{task:02d}{int(self.data_id):03d}":
            raise ValueError(f"total_uid {self.total_uid} does not follow from the other ids")
        if not self.conversations[1].output:
            raise ValueError("the reference answer has no steps")
        return self

    @property
    def input(self) -> tuple[_Part, ...]:
        return self.conversations[0].input

    @property
    def images(self) -> list[str]:
        return [part.image for part in self.input if part.image is not None]

    @property
    def request(self) -> str:
        """What a system is asked, `<image>` in the place of each picture.

        As the official generators, it is told with how many steps people answered.
        """
        lines = [f"{p.plain_text} <image>" if p.image else p.plain_text for p in self.input]
        count = len(self.conversations[1].output)
        steps = "1 step" if count == 1 else f"{count} steps"
        return "\n".join([*lines, f"Answer in about {steps}, each a text with one image."])


class Opening(Benchmark):
    """The test items; a topic is a group.

    Args:
        source: a copy of the official repository, its data folder, or a snapshot of the Hub.
    """

    name, headline, folder_suffix = "opening", OVERALL, SUFFIX

    def __init__(self, source: Path) -> None:
        folders = ("", "OpenING-benchmark", "OpenING-Benchmark")
        path = files.find_file(source, folders, ["test_data.jsonl"], "OpENING")
        self._folder = path.parent
        rows = files.read_rows(path, _OpeningItem)
        self.items = unique(path, self.name, map(self._item, rows))
        pictures = [(i.total_uid, name, self._folder / name) for i in rows for name in i.images]
        files.check_pictures(path, pictures, "unpack OpENING's images beside the file")

    def _item(self, row: _OpeningItem) -> Item:
        images = tuple(self._folder / name for name in row.images)
        return Item(row.total_uid, row.meta_task_name, row.request, images, row)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        shown = {"Request": self._request(item.item_id), "Answer": answer}
        return [_call(SCORE, shown, partial(only_object, read=_scores))]

    def compare(self, item_id: str, answer_a: Answer, answer_b: Answer) -> JudgeCall:
        """The call that compares two answers to an item.

        Raises:
            FoundryError: there is no such item, or one of its pictures cannot be read.
        """
        request = self._request(item_id)
        shown = {"Request": request, "Answer of A": answer_a, "Answer of B": answer_b}
        return _call(COMPARE, shown, parse_verdict)

    def metrics(self, item: Item, values: Values) -> Metrics:
        scores = values.get(SCORE)
        if not isinstance(scores, dict):
            return dict.fromkeys((OVERALL, *CRITERIA))
        numbers = {name: float(scores[name]) for name in CRITERIA}  # type: ignore[arg-type]
        return {OVERALL: sum(numbers.values()) / len(numbers), **numbers}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """Means of the criteria, and the official overall: the mean of their means as printed, with
        two decimals, rounded once more.
        """
        means = {name: mean(items, name) for name in CRITERIA}
        rounded = [round(value, 2) for value in means.values() if value is not None]
        overall = round(sum(rounded) / len(rounded), 2) if rounded else None
        return {OVERALL: overall, **means}

    def write_answer(self, folder: Path, item: Item, answer: Answer) -> None:
        """`<total_uid>.json` repeats the item and holds the steps of the answer; the pictures lie
        beside it.
        """
        steps = []
        for number, step in enumerate(answer):
            stem = f"{item.item_id}-o-{number}"
            name = files.write_image(folder, stem, step.image) if step.image else None
            steps.append({"text": step.text, "image": name})
        content = item.official.model_dump(mode="json")
        content["conversations"][1] = {"output": steps}
        files.write_json(folder / f"{item.item_id}.json", content)

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        # Some systems' official examples are named .jsonl; they are one object as well.
        for item_id in sorted({file.stem for file in files.answer_files(source, "*.json*")}):
            yield item_id, read_answer(source, item_id) or ()

    def _request(self, item_id: str) -> list[AnswerStep]:
        item = self.by_id.get(item_id)
        if item is None:
            raise FoundryError(f"{self._folder}: has no item {item_id}, which is compared")
        images = iter(item.image_files)
        return [
            AnswerStep(
                part.plain_text, files.read_image(next(images), item_id) if part.image else None
            )
            for part in item.official.input
        ]


def read_answer(folder: Path, item_id: str) -> Answer | None:
    """The answer to an item in a system's folder; None: there is none.

    Raises:
        FoundryError: a damaged file, or a picture that is missing or damaged.
    """
    paths = (folder / f"{item_id}{suffix}" for suffix in (".json", ".jsonl"))
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return None
    parts = files.read_answers(path, _AnswerFile).conversations[1].output
    return tuple(_answer_step(folder, item_id, part) for part in parts)


def parse_verdict(text: str) -> Verdict | None:
    """The verdict; None unless the verdict lines agree on one of the four."""
    verdicts: dict[str, Verdict] = {verdict.upper(): verdict for verdict in get_args(Verdict)}
    return verdicts.get(labelled(text, "verdict"))


def _answer_step(folder: Path, item_id: str, part: _Part) -> AnswerStep:
    if not part.image:
        return AnswerStep(part.plain_text)
    # Like the official scorer: by its name alone, beside the file.
    name = part.image.replace("\\", "/").rsplit("/", 1)[-1]
    return AnswerStep(part.plain_text, files.read_image(folder / name, item_id))


def _call(
    name: str, shown: dict[str, Sequence[AnswerStep]], read: Callable[[str], JsonValue]
) -> JudgeCall:
    """A question about what is shown, by its titles."""
    lines = lines_of(Template(_PROMPTS[name]).substitute(_TEXTS))
    for title, steps in shown.items():
        lines += [*lines_of("", f"{title}:"), *(steps or lines_of("(empty)"))]
    text, images = numbered(lines, _resized)
    return JudgeCall(name, text, read, images)


def _resized(image: EncodedImage) -> EncodedImage:
    return EncodedImage.of(image.image.resize(_IMAGE_SIZE))


def _scores(value: object) -> dict[str, JsonValue] | None:
    """The score of every criterion; None unless they are all there."""
    if not isinstance(value, dict) or value.keys() != set(CRITERIA):
        return None
    entries = {name: value[name] for name in CRITERIA}
    scores = {n: e.get("score") if isinstance(e, dict) else e for n, e in entries.items()}
    # A bool is an int to isinstance, and no score.
    valid = all(type(score) is int and 0 <= score <= MAX_SCORE for score in scores.values())
    return scores if valid else None
