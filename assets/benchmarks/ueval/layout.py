"""A system's answers in the file that UEval's scorer reads.

`<root>/<system>.json` lists `{"id", "text_answer", "image_answer": [paths]}`. The scorer looks for
relative paths from the folder that it is started in, so it is started in `root`.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from schemas.errors import FoundryError, first_problem
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from ..benchmark import Answer, AnswerStep
from ..opening.items import read_image

_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}


def _paths(value: object) -> object:
    """Paths as a list, without empty ones, as the scorer takes them: one alone is text."""
    values = value if isinstance(value, list) else [value]
    return [path for path in values if path]


class _AnswerRow(BaseModel):
    # The other names are those of the official generators' files.
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str
    text: str | None = Field(
        validation_alias=AliasChoices("text_answer", "gemini_text_ans", "emu_text")
    )
    images: Annotated[list[str], BeforeValidator(_paths)] = Field(
        validation_alias=AliasChoices("image_answer", "gemini_image_ans", "emu_image")
    )


def answer_text(answer: Answer) -> str:
    """The texts of an answer, a paragraph each."""
    return "\n\n".join(step.text.strip() for step in answer if step.text.strip())


def answer_images(answer: Answer) -> tuple[EncodedImage, ...]:
    """The images of an answer, in order."""
    return tuple(step.image for step in answer if step.image is not None)


def write(root: Path, system: str, answers: Iterable[tuple[str, Answer]]) -> Path:
    """Write the answers; the file comes last, so that one that is there is complete."""
    if not system or Path(system).name != system:
        raise FoundryError(f"system name {system!r}: must be usable as a file's name")
    rows = [
        {
            "id": item_id,
            "text_answer": answer_text(answer),
            "image_answer": _write_images(root, f"{system}_images", item_id, answer),
        }
        for item_id, answer in answers
    ]
    path = root / f"{system}.json"
    atomic_write(path, json.dumps(rows, ensure_ascii=False, indent=1))
    return path


def read(source: Path) -> Iterator[tuple[str, Answer]]:
    """The answers, of an item twice the last: all the text with the first image, then the others.

    Raises:
        FoundryError: a damaged file, or an image that is missing or damaged.
    """
    for row in _rows(source).values():
        images: list[EncodedImage | None] = [
            read_image(_found(source, path), row.id) for path in row.images
        ]
        first, *others = images or [None]
        yield row.id, (AnswerStep(row.text or "", first), *(AnswerStep("", i) for i in others))


def _write_images(root: Path, folder: str, item_id: str, answer: Answer) -> list[str]:
    names = []
    for number, image in enumerate(answer_images(answer), 1):
        names.append(f"{folder}/{item_id}_{number}.{_EXTENSIONS.get(image.mime, 'png')}")
        atomic_write(root / names[-1], image.data)
    return names


def _rows(source: Path) -> dict[str, _AnswerRow]:
    try:
        rows = TypeAdapter(list[_AnswerRow]).validate_json(source.read_bytes())
    except OSError as error:
        raise FoundryError(
            f"{source}: cannot be read ({error.strerror}); give a system's answers file of UEval"
        ) from error
    except ValidationError as error:
        problem = first_problem(error, root="file")
        raise FoundryError(f"{source}: answer {problem}; write it again") from error
    return {row.id: row for row in rows}


def _found(source: Path, name: str) -> Path:
    """An image beside the file of answers, or below the current folder as the scorer has it."""
    beside = source.parent / name
    return beside if beside.is_file() or not Path(name).is_file() else Path(name)
