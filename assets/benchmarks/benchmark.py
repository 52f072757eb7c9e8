"""What the framework knows of a benchmark: items, a judge's calls, metrics, official files.

Every benchmark is one class in a file beside this module: its official files, what a judge is asked
and how the answers are read, official metrics, and answers as the official scorer reads them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from schemas import FoundryError
from warehouse import EncodedImage

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
    """

    item_id: str
    group: str
    text: str
    image_files: tuple[Path, ...] = ()


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
        images: what is to be seen, in the order in which the text names them.
    """

    name: str
    text: str
    images: tuple[EncodedImage, ...] = ()


def lines_of(*texts: str) -> list[AnswerStep]:
    return [AnswerStep(text) for text in texts]


def numbered_call(
    name: str, lines: Iterable[AnswerStep], fit: Callable[[EncodedImage], EncodedImage]
) -> JudgeCall:
    """A question with a line for every text, which ends with the number of its picture.

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
    return JudgeCall(name, "\n".join(texts), tuple(images))


@dataclass(frozen=True)
class ItemMetrics:
    """An item's metrics."""

    item_id: str
    group: str
    metrics: Metrics


def mean(items: Iterable[ItemMetrics], metric: str, group: str | None = None) -> float | None:
    """Of the items (of a group) that have a value; None: none of them has."""
    own = (item for item in items if group in (None, item.group))
    values = [value for item in own if (value := item.metrics.get(metric)) is not None]
    return sum(values) / len(values) if values else None


class Benchmark(ABC):
    """A benchmark, opened on a copy of its official files.

    Attributes:
        name: with its version, as tables name it: `wise-legacy`.
        items: in the official order.
        headline: the number of `aggregate` by which systems are ranked.
        judge_temperature: of the official protocol.
    """

    name: str
    items: Sequence[Item]
    headline: str
    judge_temperature: float = 0

    @abstractmethod
    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        """Calls that can be made now; the framework makes those whose names are not in `values`.

        It asks again after every round, since a call may need the answers of earlier ones. Where
        there are none at first, the item's only value is `NOTHING_ASKED: True`.

        Raises:
            FoundryError: a reference picture of the item cannot be read.
        """

    @abstractmethod
    def parse(self, call: str, text: str) -> JsonValue:
        """What a judge's answer to the call of that name says; None: it cannot be read."""

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

    @abstractmethod
    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        """Write a system's answers (item id, answer) as the official scorer reads them.

        Returns the folder or file that `read_answers` takes.
        """

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        """The answers of a system in the official layout, one after the other.

        Raises:
            FoundryError: a missing or damaged file or picture, or one that is named like no item;
                in one line with what to do.
        """
        known = {item.item_id for item in self.items}
        for item_id, answer in self.answers_in(source):
            if item_id not in known:
                raise FoundryError(f"{source}: answer {item_id} is to no item of {self.name}")
            yield item_id, answer

    @abstractmethod
    def answers_in(self, source: Path) -> Iterable[tuple[str, Answer]]:
        """What `read_answers` gives, for any item."""


class ExactlyJudged(Benchmark):
    """A benchmark whose answers are judged without a model."""

    @abstractmethod
    def judge(self, item: Item, answer: Answer) -> Values:
        """What a judge would say, by the name of the question; the same for the same pictures."""

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        """None: no model is asked."""
        return []

    def parse(self, call: str, text: str) -> JsonValue:
        """None: no model is asked."""
        return None
