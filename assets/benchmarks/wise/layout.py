"""A system's pictures as WISE's scorers read them: `<root>/<system>/<prompt id>.png`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from schemas.errors import FoundryError

from ..benchmark import Answer, AnswerStep
from ..opening.items import read_image
from ..single_image import images_by_item, last_image, write_png


def write_answers(root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
    """Write the last picture of every answer; an answer without one has no file."""
    if not system or Path(system).name != system:
        raise FoundryError(f"system name {system!r}: must be usable as a folder's name")
    folder = root / system
    folder.mkdir(parents=True, exist_ok=True)
    for item_id, answer in answers:
        write_png(folder / f"{item_id}.png", last_image(answer))
    return folder


def read_answers(folder: Path, known: Mapping[str, object]) -> Iterator[tuple[str, Answer]]:
    """The pictures by id, in the order of `known`; FoundryError: none, unknown or damaged."""
    files = sorted(folder.glob("*.png"))
    for item_id, file in images_by_item(files, known, folder).items():
        yield item_id, (AnswerStep("", read_image(file, item_id)),)
