"""OpENING: open-ended interleaved answers, graded on seven criteria (GPT-score of the paper)."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from schemas.errors import FoundryError

from ..benchmark import Answer, Benchmark, Item, ItemMetrics, JudgeCall, Metrics, Values
from .items import data_file, load, load_images
from .judge import CRITERIA, SCORE, parse_scores, score_call
from .layout import OutputFolder
from .scores import ScoredAnswer, score_means


class Opening(Benchmark):
    """The test items; a topic is a group. Comparisons of systems are in `judge` and `scores`."""

    name, headline = "opening", "overall"

    def __init__(self, source: Path) -> None:
        self._source = source
        self._items = {item.total_uid: item for item in load(source)}
        folder = data_file(source).parent
        self.items = [
            Item(
                item.total_uid,
                item.meta_task_name,
                item.request(),
                tuple(folder / name for name in item.input_images),
            )
            for item in self._items.values()
        ]

    @classmethod
    def open(cls, source: Path) -> "Opening":
        """Raises FoundryError: a missing or damaged file, in one line."""
        return cls(source)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        official = self._items[item.item_id]
        return [score_call(official, load_images(self._source, official), answer)]

    def parse(self, call: str, text: str) -> JsonValue:
        scores = parse_scores(text)
        return None if scores is None else dict(scores)

    def metrics(self, item: Item, values: Values) -> Metrics:
        scores = values.get(SCORE)
        if not isinstance(scores, dict):
            return dict.fromkeys(("overall", *CRITERIA))
        numbers = {name: float(scores[name]) for name in CRITERIA}  # type: ignore[arg-type]
        return {"overall": sum(numbers.values()) / len(numbers), **numbers}

    def aggregate(self, items: Sequence[ItemMetrics]) -> dict[str, float | None]:
        """Means of the criteria, and the official overall (the mean of rounded means)."""
        scored = [_scored(item) for item in items]
        means = score_means(scored).get(self.name)
        if means is None or not means.means:
            return dict.fromkeys(("overall", *CRITERIA))
        return {"overall": means.published["Overall"], **means.means}

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        folder = OutputFolder(root, system)
        for item_id, answer in answers:
            folder.write(self._items[item_id], answer)
        return folder.path

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        folder = OutputFolder.open(source)
        for item_id in folder.item_ids():
            if item_id not in self._items:
                raise FoundryError(f"{source}: answer {item_id} is to no item of {self.name}")
            yield item_id, folder.read(item_id) or ()


def _scored(item: ItemMetrics) -> ScoredAnswer:
    values = {name: item.metrics[name] for name in CRITERIA}
    known = {name: int(value) for name, value in values.items() if value is not None}
    return ScoredAnswer(item.item_id, Opening.name, known if len(known) == len(CRITERIA) else None)
