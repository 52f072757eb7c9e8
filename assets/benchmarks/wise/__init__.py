"""WISE: pictures of what a prompt hints at, which one has to know (arXiv 2503.07265).

Two versions: `legacy`, the paper's, with three scores of a picture, and `verified` (April 2026),
with corrected prompts and one yes or no.
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
from .items import Version, group_of, load
from .judge import SCORE, parse_scores, score_call
from .layout import read_answers, write_answers
from .scores import OVERALL, aggregate, item_metrics, lowest


class Wise(Benchmark):
    """A thousand prompts in six groups; the last picture of an answer is graded.

    The official scorers skip a missing picture, and then compute no overall. Here an answer
    without a picture has the lowest scores.
    """

    headline = OVERALL

    def __init__(self, source: Path, version: Version) -> None:
        self.name = f"wise-{version}"
        self._version = version
        self._prompts = {str(prompt.prompt_id): prompt for prompt in load(source, version)}
        self.items = [
            Item(item_id, group_of(prompt.prompt_id, version), prompt.prompt)
            for item_id, prompt in self._prompts.items()
        ]

    @classmethod
    def open(cls, source: Path, version: Version) -> "Wise":
        """Raises FoundryError: a missing or damaged file, in one line."""
        return cls(source, version)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        image = last_image(answer)
        if image is None:
            return []
        return [score_call(self._prompts[item.item_id], image, self._version)]

    def parse(self, call: str, text: str) -> JsonValue:
        return parse_scores(text, self._version)

    def metrics(self, item: Item, values: Values) -> Metrics:
        scores = lowest(self._version) if NOTHING_ASKED in values else values.get(SCORE)
        return item_metrics(scores, self._version)

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        return aggregate(items, self._version)

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        return write_answers(root, system, answers)

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        return read_answers(source, self._prompts)
