"""Benchmarks whose scorers look at one picture an item: the last one of an answer.

The official scorers of WISE and RISE give no number at all while one picture is missing. Here an
answer without a picture gets the lowest value of every metric, so that a system that draws nothing
never looks better than one that draws badly.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from schemas.errors import FoundryError
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from . import files
from .benchmark import (
    NOTHING_ASKED,
    Answer,
    AnswerStep,
    Benchmark,
    Item,
    JudgeCall,
    Metrics,
    Values,
    pictures,
)


class SingleImageBenchmark(Benchmark):
    """Answers are PNG files: `<root>/<system>/<picture_folder>/<item id>.png`.

    Attributes:
        suffixes: of pictures that are read; of several files of an item the first one.
    """

    suffixes: tuple[str, ...] = (".png",)

    @abstractmethod
    def image_calls(self, item: Item, image: EncodedImage) -> list[JudgeCall]:
        """All calls about the picture of an answer."""

    @abstractmethod
    def image_metrics(self, item: Item, values: Values | None) -> Metrics:
        """An item's metrics from what a judge said; None: the answer has no picture."""

    def picture_folder(self, item_id: str) -> str:
        """Where the picture of an item lies, below the system's folder."""
        return ""

    def calls(self, item: Item, answer: Answer, values: Values) -> list[JudgeCall]:
        drawn = pictures(answer)
        return self.image_calls(item, drawn[-1]) if drawn else []

    def metrics(self, item: Item, values: Values) -> Metrics:
        return self.image_metrics(item, None if NOTHING_ASKED in values else values)

    def write_answers(self, root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
        """Write the last picture of every answer; an answer without one has no file."""
        folder = files.system_folder(root, system)
        for item_id, answer in answers:
            file = folder / self.picture_folder(item_id) / f"{item_id}.png"
            if drawn := pictures(answer):
                atomic_write(file, drawn[-1].as_png.data)
            else:
                file.unlink(missing_ok=True)  # that of an earlier answer
        return folder

    def answers_in(self, source: Path) -> Iterator[tuple[str, Answer]]:
        """The pictures, in the items' order."""
        folders = {item.item_id: source / self.picture_folder(item.item_id) for item in self.items}
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
        for item_id in folders:
            if item_id in found:
                yield item_id, (AnswerStep("", files.read_image(found[item_id], item_id)),)
