"""CoMM: instructions with images, generated in four ways from a document of steps."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pydantic import JsonValue

from inference.agent_prompts.templates import IMAGE
from schemas.errors import FoundryError

from ..benchmark import Answer, Benchmark, Item, ItemMetrics, JudgeCall, Metrics, Values
from ..opening.items import read_image
from .items import Task, load
from .judge import (
    DESCRIPTIONS,
    DOCUMENT,
    FIDELITY,
    IRS,
    SCORES,
    TEXTS,
    descriptions_call,
    document,
    document_call,
    fidelity_call,
    parse,
    texts_call,
)
from .layout import AnswerFolder
from .scores import means


class CoMM(Benchmark):
    """A task of CoMM; a source of its documents is a group.

    Systems are ranked by how their images fit the text (task 1: their texts the images), the only
    score that the paper's systems differ much in.
    """

    judge_temperature = 1

    def __init__(self, source: Path, task: Task) -> None:
        self._task = task
        self._items = {item.item_id: item for item in load(source, task)}
        self.name = f"comm-task{task}"
        self.metric_names = SCORES[task] if task == 1 else (*SCORES[task], IRS)
        self.headline = self.metric_names[-1]
        self.items = [
            Item(item.item_id, item.group, item.text(IMAGE), item.input_images)
            for item in self._items.values()
        ]

    @classmethod
    def open(cls, source: Path, task: Task) -> "CoMM":
        """Raises FoundryError: a missing or damaged file or image, in one line."""
        return cls(source, task)

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        official = self._items[item.item_id]
        images = (read_image(path, item.item_id) for path in official.input_images)
        if self._task == 1:
            groups = [[next(images) for _ in step] for step in official.input]
            return [texts_call(groups, answer)]
        shown = document(official, images, answer)
        calls = [document_call(shown, self._task)]
        if not shown.answer_images:
            return [*calls, fidelity_call([], [])]
        calls.append(descriptions_call(shown))
        if isinstance(descriptions := values.get(DESCRIPTIONS), list):
            calls.append(fidelity_call([str(words) for words in descriptions], shown.answer_images))
        return calls

    def parse(self, call: str, text: str) -> JsonValue:
        return parse(call, text, self._task)

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
        found = means(items)
        numbers: dict[str, float | None] = {name: found.get(name) for name in self.metric_names}
        if len(groups) == 1:
            return numbers
        by_group = {group: means([i for i in items if i.group == group]) for group in groups}
        for group, values in by_group.items():
            numbers |= {f"{group}/{name}": values.get(name) for name in self.metric_names}
        return numbers

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        if not system or Path(system).name != system:
            raise FoundryError(f"system name {system!r}: must be usable as a folder's name")
        folder = AnswerFolder(root / system)
        for item_id, answer in answers:
            folder.write(self._items[item_id], answer)
        return folder.path

    def read_answers(self, source: Path) -> Iterator[tuple[str, Answer]]:
        folder = AnswerFolder(source)
        for item_id in folder.item_ids(self._task):
            if item_id not in self._items:
                raise FoundryError(f"{source}: answer {item_id} is to no item of {self.name}")
            yield item_id, folder.read(item_id)
