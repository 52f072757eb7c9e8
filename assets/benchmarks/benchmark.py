"""What the framework knows of a benchmark: items, a judge's calls, metrics, official files.

Every benchmark is one class in a file beside this module: its official files, what a judge is asked
and how the answers are read, official metrics, and answers as the official scorer reads them.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import JsonValue

from schemas import FoundryError
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from . import files

# Name of a judge's call -> what its answer says; None: it could not be read, also when asked again.
Values = Mapping[str, JsonValue]
# The only value of an answer about which there is nothing to ask, such as one without a picture
# where pictures are judged.
NOTHING_ASKED = "nothing-asked"
# Metric -> value of an item; None: unscored, since the judge's answer could not be read.
Metrics = Mapping[str, float | None]


@dataclass(frozen=True)
class Item:
    """An item as a system gets it.

    Args:
        group: the task or category whose numbers are reported by themselves.
        text: the request; `<image>` may stand for each image, in order.
        image_files: the pictures given with it.
        official: the benchmark's own row, which only its class reads.
    """

    item_id: str
    group: str
    text: str
    image_files: tuple[Path, ...] = ()
    official: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class AnswerStep:
    """A step of an interleaved answer: a text, a picture, or both."""

    text: str
    image: EncodedImage | None = None


Answer = tuple[AnswerStep, ...]


def pictures(answer: Iterable[AnswerStep]) -> tuple[EncodedImage, ...]:
    return tuple(step.image for step in answer if step.image is not None)


@dataclass(frozen=True)
class JudgeCall:
    """One question to a judge.

    Args:
        name: what is judged, unique for an item, such as `reasoning` or `text-3`.
        text: the question, with everything that is to be read.
        read: what an answer says; None: it cannot be read without a guess.
        images: what is to be seen, in the order in which the text names them.
    """

    name: str
    text: str
    read: Callable[[str], JsonValue] = field(compare=False)
    images: tuple[EncodedImage, ...] = ()


@dataclass(frozen=True)
class ItemMetrics:
    item_id: str
    group: str
    metrics: Metrics


def mean(items: Iterable[ItemMetrics], metric: str, group: str | None = None) -> float | None:
    """Of the items (of a group) that have a value; None: none of them has."""
    own = (item for item in items if group in (None, item.group))
    values = [value for item in own if (value := item.metrics.get(metric)) is not None]
    return sum(values) / len(values) if values else None


def pooled(items: Iterable[ItemMetrics], metric: str, parts: Mapping[str, int]) -> float | None:
    """The mean of a metric over parts of items, such as questions. `parts`: how many, by id."""
    known = [(v, parts[i.item_id]) for i in items if (v := i.metrics.get(metric)) is not None]
    total = sum(count for _, count in known)
    return sum(value * count for value, count in known) / total if total else None


def unique(source: Path, benchmark: str, items: Iterable[Item]) -> list[Item]:
    """The items; FoundryError: there are none, or one is there twice."""
    found: dict[str, Item] = {}
    for item in items:
        if found.setdefault(item.item_id, item) is not item:
            raise FoundryError(f"{source}: item {item.item_id} is there twice; remove one")
    if not found:
        raise FoundryError(f"{source}: has no items of {benchmark}; copy the official file again")
    return list(found.values())


class Benchmark(ABC):
    """A benchmark, opened on a copy of its official files.

    Attributes:
        name: with its version, as tables name it: `wise-legacy`.
        items: in the official order.
        headline: the number of `aggregate` by which systems are ranked.
        judge_temperature: of the official protocol.
        folder_suffix: ends the name of a system's folder of answers.
    """

    name: str
    items: Sequence[Item]
    headline: str
    judge_temperature: float = 0
    folder_suffix = ""

    @cached_property
    def by_id(self) -> dict[str, Item]:
        return {item.item_id: item for item in self.items}

    @abstractmethod
    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        """Calls that can be made now; the framework makes those whose names are not in `values`.

        It asks again after every round, since a call may need the answers of earlier ones. Where
        there are none at first, the item's only value is `NOTHING_ASKED: True`.

        Raises:
            FoundryError: a reference picture of the item cannot be read.
        """

    @abstractmethod
    def metrics(self, item: Item, values: Values) -> Metrics:
        """An item's metrics; None where a call that it needs is missing or unreadable."""

    def quality_by_step(self, item: Item, values: Values) -> Mapping[int, float]:
        """Step (from 1) -> how well it answers, 0..1, where the judge says so about single steps.

        Empty where answers are judged as a whole, as by the protocols of the field.
        """
        return {}

    @abstractmethod
    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """The official numbers by name, also of single groups, from the items that have values.

        An item may occur several times (a bootstrap resample). None: no item has the metric.
        """

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        """Write a system's answers (item id, answer) as the official scorer reads them.

        Returns the folder or file that `read_answers` takes.
        """
        folder = files.system_folder(root, system, self.folder_suffix)
        for item_id, answer in answers:
            self.write_answer(folder, self.by_id[item_id], answer)
        return folder

    @abstractmethod
    def write_answer(self, folder: Path, item: Item, answer: Answer) -> object:
        """Write an answer; the file that `answers_in` looks for comes last, and is complete."""

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        """The answers of a system in the official layout, one after the other.

        Raises:
            FoundryError: a missing or damaged file or picture, or one that is named like no item;
                in one line with what to do.
        """
        for item_id, answer in self.answers_in(source):
            if item_id not in self.by_id:
                raise FoundryError(f"{source}: answer {item_id} is to no item of {self.name}")
            yield item_id, answer

    @abstractmethod
    def answers_in(self, source: Path) -> Iterable[tuple[str, Answer]]:
        """What `read_answers` gives, for any item."""


class SingleImageBenchmark(Benchmark):
    """Scorers look at one picture an item: the last one of an answer.

    Answers are PNG files: `<root>/<system>/<picture_folder>/<item id>.png`. The official scorers
    give no number at all while one picture is missing. Here an answer without a picture gets the
    lowest value of every metric, so that a system that draws nothing never looks better than one
    that draws badly.

    Attributes:
        suffixes: of pictures that are read; of several files of an item the first one.
    """

    suffixes: tuple[str, ...] = (".png",)

    @abstractmethod
    def image_calls(self, item: Item, image: EncodedImage) -> list[JudgeCall]:
        """All calls about the picture of an answer."""

    def picture_folder(self, item: Item) -> str:
        """Where the picture of an item lies, below the system's folder."""
        return ""

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        drawn = pictures(answer)
        return self.image_calls(item, drawn[-1]) if drawn else []

    def write_answer(self, folder: Path, item: Item, answer: Answer) -> None:
        """The last picture of the answer; an answer without one has no file."""
        file = folder / self.picture_folder(item) / f"{item.item_id}.png"
        if drawn := pictures(answer):
            atomic_write(file, drawn[-1].as_png.data)
        else:
            file.unlink(missing_ok=True)  # that of an earlier answer

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        """The pictures, in the items' order."""
        folders = {item.item_id: source / self.picture_folder(item) for item in self.items}
        found: dict[str, Path] = {}
        for suffix in self.suffixes:
            for folder in sorted(set(folders.values())):
                for file in sorted(folder.glob(f"*{suffix}")):
                    found.setdefault(file.stem, file)
        if not found:
            raise FoundryError(f"{source}: has no pictures of answers; give the folder with them")
        for item_id, file in found.items():
            if folders.get(item_id) != file.parent:
                raise FoundryError(
                    f"{file}: is named like no item of its folder; move or remove it"
                )
        for item_id in filter(found.__contains__, folders):
            yield item_id, (AnswerStep("", files.read_image(found[item_id], item_id)),)


def read_prompts(benchmark: str) -> Mapping[str, str]:
    """What a judge is asked: texts by name, from the YAML file of a benchmark beside this module.

    Another wording is another question, to which no stored answer belongs.
    """
    path = Path(__file__).with_name(f"{benchmark}.yaml")
    return cast(Mapping[str, str], yaml.safe_load(path.read_text("utf-8")))


def lines_of(*texts: str) -> list[AnswerStep]:
    return [AnswerStep(text) for text in texts]


def numbered(
    lines: Iterable[AnswerStep], fit: Callable[[EncodedImage], EncodedImage]
) -> tuple[str, tuple[EncodedImage, ...]]:
    """A line for every text, which ends with the number of its picture; and the pictures.

    Args:
        fit: a picture as the protocol shows it to a judge.
    """
    texts, images = list[str](), list[EncodedImage]()
    for line in lines:
        text = line.text
        if line.image is not None:
            images.append(fit(line.image))
            text = f"{text} [image {len(images)}]".lstrip()
        texts.append(text)
    return "\n".join(texts), tuple(images)


def json_objects(text: str) -> list[object]:
    """The outermost JSON objects of a text, in order."""
    decoder, found, start = json.JSONDecoder(), [], text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            found.append(value)
        except ValueError:
            end = start + 1
        start = text.find("{", end)
    return found


def only_object(text: str, read: Callable[[object], JsonValue]) -> JsonValue:
    """What `read` makes of the JSON objects of a text; None unless it can read exactly one."""
    values = [value for each in json_objects(text) if (value := read(each)) is not None]
    return values[0] if len(values) == 1 else None


def labelled(text: str, label: str) -> str:
    """What follows `label:` in a line, upper case, without spaces and Markdown's marks.

    Empty: there is no such line, or several differ. `label` is a regular expression of any case.
    """
    line = rf"^[ \t*_#>-]*{label}[\s*_]*:[\s*_]*(.*?)[\s*_.]*$"
    lines = re.findall(line, text, re.IGNORECASE | re.MULTILINE)
    found = {re.sub(r"\s", "", each).upper() for each in lines}
    return found.pop() if len(found) == 1 else ""


def grade(text: str, label: str, scale: str) -> int | None:
    """The integer of a labelled line; None: there is none of the scale (`[1-5]`)."""
    value = labelled(text, label)
    return int(value) if re.fullmatch(scale, value) else None
