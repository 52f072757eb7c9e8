"""A system's pictures as RISE's scorer reads them.

`<root>/<system>/images/<category>/<index>.png`; of other systems also JPEG.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from schemas.errors import FoundryError

from ..benchmark import Answer, AnswerStep
from ..opening.items import read_image
from ..single_image import images_by_item, last_image, system_folder, write_png
from .items import RiseItem

_SUFFIXES = (".png", ".jpg", ".jpeg")  # the first that is there, as officially


def write_answers(
    root: Path, system: str, answers: Iterable[tuple[str, Answer]], items: Mapping[str, RiseItem]
) -> Path:
    """Write the last picture of every answer; an answer without one has no file."""
    folder = system_folder(root, system)
    for item_id, answer in answers:
        file = folder / "images" / items[item_id].category / f"{item_id}.png"
        write_png(file, last_image(answer))
    return folder


def read_answers(folder: Path, items: Mapping[str, RiseItem]) -> Iterator[tuple[str, Answer]]:
    """The pictures, in the order of `items`; FoundryError: none, unknown or damaged."""
    files = [file for suffix in _SUFFIXES for file in sorted(folder.glob(f"images/*/*{suffix}"))]
    for item_id, file in images_by_item(files, items, folder).items():
        if file.parent.name != items[item_id].category:
            raise FoundryError(f"{file}: must lie in {items[item_id].category}; move it")
        yield item_id, (AnswerStep("", read_image(file, item_id)),)
