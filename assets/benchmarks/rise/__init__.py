"""RISE: edits whose result one has to infer, of four kinds (RISEBench, arXiv 2504.02826).

Two scorers: `original`, as in published tables until April 2026, and `fixed`, with which items
whose consistency is not judged can be complete as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from ..benchmark import (
    NOTHING_ASKED,
    Answer,
    Benchmark,
    Item,
    ItemMetrics,
    JudgeCall,
    Metrics,
    Values,
)
from ..single_image import last_image
from .items import RiseItem, load
from .judge import call_names, judge_calls, parse_score
from .layout import read_answers, write_answers
from .scores import ACCURACY, Scorer, aggregate, item_metrics, lowest

_NAMES: dict[Scorer, str] = {"original": "rise", "fixed": "rise-fixed"}


class Rise(Benchmark):
    """Temporal, causal, spatial and logical edits; the last picture of an answer is judged.

    The official scorer stops at a missing picture. Here an answer without a picture has the lowest
    value in every dimension.
    """

    headline = ACCURACY

    def __init__(self, source: Path, scorer: Scorer) -> None:
        self.name = _NAMES[scorer]
        self._scorer = scorer
        self._data = load(source)
        self._items: dict[str, RiseItem] = {item.index: item for item in self._data.items}
        self.items = [
            Item(item.index, item.group, item.instruction, (self._data.folder / item.image,))
            for item in self._data.items
        ]

    @classmethod
    def open(cls, source: Path, scorer: Scorer) -> "Rise":
        """Raises FoundryError: a missing or damaged file, in one line."""
        return cls(source, scorer)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        image = last_image(answer)
        if image is None:
            return []
        return judge_calls(self._data, self._items[item.item_id], image)

    def parse(self, call: str, text: str) -> JsonValue:
        return parse_score(call, text)

    def metrics(self, item: Item, values: Values) -> Metrics:
        official = self._items[item.item_id]
        if NOTHING_ASKED in values:
            return lowest(self._data, official, self._scorer)
        answers = {name: _integer(values.get(call)) for name, call in call_names(official).items()}
        return item_metrics(self._data, official, answers, self._scorer)

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        return aggregate(items)

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        return write_answers(root, system, answers, self._items)

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        return read_answers(source, self._items)


def _integer(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None
