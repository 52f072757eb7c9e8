"""What benchmarks share whose scorers look at one picture an item: the last one of an answer.

The official scorers of WISE and RISE give no number at all while one picture is missing. Here an
answer without a picture gets the lowest value of every metric, so that a system that draws nothing
never looks better than one that draws badly.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.errors import FoundryError
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from .benchmark import AnswerStep


def last_image(answer: Sequence[AnswerStep]) -> EncodedImage | None:
    """The picture that is judged; None: the answer has none."""
    return next((step.image for step in reversed(answer) if step.image is not None), None)


def system_folder(root: Path, system: str) -> Path:
    """The folder of a system's answers, created; FoundryError: its name is no folder's."""
    if not system or Path(system).name != system:
        raise FoundryError(f"system name {system!r}: must be usable as a folder's name")
    folder = root / system
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_png(file: Path, image: EncodedImage | None) -> None:
    """Write a picture as PNG; None: an earlier one is removed."""
    if image is None:
        file.unlink(missing_ok=True)
    else:
        atomic_write(file, image.as_png.data)


def images_by_item(
    files: Sequence[Path], known: Mapping[str, object], folder: Path
) -> dict[str, Path]:
    """Item -> its file, in the order of `known`; of several with one name, the first.

    Raises:
        FoundryError: there is none at all, or one is named like no item.
    """
    found: dict[str, Path] = {}
    for file in files:
        found.setdefault(file.stem, file)
    if not found:
        raise FoundryError(f"{folder}: has no pictures of answers; give the folder with them")
    if unknown := sorted(found.keys() - known.keys()):
        raise FoundryError(
            f"{found[unknown[0]]}: is named like no item of the benchmark; remove it"
        )
    return {item_id: found[item_id] for item_id in known if item_id in found}
