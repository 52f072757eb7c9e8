"""A system's pictures as WISE's scorers read them: `<root>/<system>/<prompt id>.png`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..benchmark import Answer, AnswerStep
from ..opening.items import read_image
from ..single_image import images_by_item, last_image, system_folder, write_png


def write_answers(root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
    """Write the last picture of every answer; an answer without one has no file."""
    folder = system_folder(root, system)
    for item_id, answer in answers:
        write_png(folder / f"{item_id}.png", last_image(answer))
    return folder


def read_answers(folder: Path, known: Mapping[str, object]) -> Iterator[tuple[str, Answer]]:
    """The pictures by id, in the order of `known`; FoundryError: none, unknown or damaged."""
    files = sorted(folder.glob("*.png"))
    for item_id, file in images_by_item(files, known, folder).items():
        yield item_id, (AnswerStep("", read_image(file, item_id)),)
