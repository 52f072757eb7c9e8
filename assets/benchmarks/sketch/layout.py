"""Answers as files: `<root>/<system>/<item id>.json` with its steps, the pictures beside it."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ValidationError

from schemas.errors import FoundryError, first_problem
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from ..benchmark import Answer, AnswerStep


class _Step(BaseModel):
    text: str
    image: str | None


class _Answer(BaseModel):
    steps: tuple[_Step, ...]


def write_answers(folder: Path, answers: Iterable[tuple[str, Answer]]) -> None:
    """The JSON file of an answer comes last, so that one that is there is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    for item_id, answer in answers:
        steps = []
        for number, step in enumerate(answer, 1):
            name = f"{item_id}-{number}.png" if step.image else None
            if step.image and name:
                atomic_write(folder / name, step.image.as_png.data)
            steps.append({"text": step.text, "image": name})
        atomic_write(folder / f"{item_id}.json", json.dumps({"steps": steps}, indent=1))


def read_answers(folder: Path) -> Iterator[tuple[str, Answer]]:
    """Raises FoundryError: no such folder, or a missing or damaged file or picture."""
    if not folder.is_dir():
        raise FoundryError(f"{folder}: is not a folder; give a system's answers")
    for path in sorted(folder.glob("*.json")):
        yield path.stem, tuple(_step(path, step) for step in _parsed(path).steps)


def _step(path: Path, step: _Step) -> AnswerStep:
    if step.image is None:
        return AnswerStep(step.text)
    file = path.with_name(Path(step.image).name)
    try:
        image = EncodedImage(file.read_bytes())
        _ = image.image
    except OSError as error:
        raise FoundryError(f"{file}: cannot be read ({error.strerror}); copy it again") from error
    except FoundryError as error:
        raise FoundryError(f"{file}: picture is damaged ({error}); copy it again") from error
    return AnswerStep(step.text, image)


def _parsed(path: Path) -> _Answer:
    try:
        return _Answer.model_validate_json(path.read_bytes())
    except OSError as error:
        raise FoundryError(f"{path}: cannot be read ({error.strerror}); copy it again") from error
    except ValidationError as error:
        problem = first_problem(error, root="answer")
        raise FoundryError(f"{path}: {problem}; write it again") from error
