"""UEval: answers of text and images, checked criterion by criterion."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from schemas.errors import FoundryError

from ..benchmark import Answer, Benchmark, Item, ItemMetrics, JudgeCall, Metrics, Values
from . import layout
from .items import load
from .judge import criterion_calls, image_name, parse_verdict, text_name
from .scores import HEADLINE, IMAGE, TEXT, summarize


class UEval(Benchmark):
    """A task is a group."""

    name, headline = "ueval", HEADLINE

    def __init__(self, source: Path) -> None:
        self._items = {item.id: item for item in load(source)}
        self.items = [Item(item.id, item.task, item.prompt) for item in self._items.values()]

    @classmethod
    def open(cls, source: Path) -> "UEval":
        """Raises FoundryError: a missing or damaged file, in one line."""
        return cls(source)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        return criterion_calls(self._items[item.item_id], answer)

    def parse(self, call: str, text: str) -> JsonValue:
        return parse_verdict(text)

    def metrics(self, item: Item, values: Values) -> Metrics:
        """Shares of criteria that are met, 0..1, of the kinds of which the item has any."""
        official = self._items[item.item_id]
        names = {
            TEXT: [text_name(n) for n, _ in enumerate(official.text_rubrics, 1)],
            IMAGE: [image_name(n) for n, _ in enumerate(official.image_rubrics, 1)],
        }
        return {metric: _rate(values, calls) for metric, calls in names.items() if calls}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        return summarize(items)

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        return layout.write(root, system, answers)

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        for item_id, answer in layout.read(source):
            if item_id not in self._items:
                raise FoundryError(f"{source}: answer {item_id} is to no item of {self.name}")
            yield item_id, answer


def _rate(values: Values, calls: Sequence[str]) -> float | None:
    """The share of calls that say yes; None if any is missing: an answer is never guessed."""
    verdicts = [values.get(call) for call in calls]
    return None if None in verdicts else verdicts.count(True) / len(verdicts)
