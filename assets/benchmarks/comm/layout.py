"""A system's answers in the folders that CoMM's scorer reads.

`<root>/<system>/<data_id>_task<N>/results.json` has the request and the answer as texts of steps,
`(1) Mix the flour. <IMAGE> (2) ...`; the images lie beside it, those of the document in `origin/`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import FoundryError, first_problem
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

from ..benchmark import Answer, AnswerStep
from ..opening.items import read_image
from .items import CommItem

MARKER = "<IMAGE>"
_RESULTS = "results.json"
_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}
_STEP = re.compile(r"\((\d+)\)\s")


class _Results(BaseModel):
    model_config = ConfigDict(extra="ignore")

    model_output: str
    prediction_image_list: list[str] = []


@dataclass(frozen=True)
class AnswerFolder:
    """The answers of one system to one task, a folder an item."""

    path: Path

    def write(self, item: CommItem, answer: Answer) -> None:
        """Write an answer; its JSON file comes last, so that one that is there is complete."""
        folder, first = self.path / item.item_id, item.given + 1
        content = {
            "model_input": item.text(MARKER).replace("\n", " "),
            "model_output": _output(answer, first),
            "input_image_list": _copied(folder, "input", 1, item.input_images),
            "output_gt_image_list": _copied(folder, "output_gt", first, item.reference_images),
            "prediction_image_list": _written(folder, answer, first),
        }
        atomic_write(folder / _RESULTS, json.dumps(content, ensure_ascii=False, indent=1))

    def item_ids(self, task: int) -> list[str]:
        """The items of a task with an answer, sorted."""
        if not self.path.is_dir():
            raise FoundryError(f"{self.path}: is not a folder; give a system's answers of CoMM")
        return sorted(file.parent.name for file in self.path.glob(f"*_task{task}/{_RESULTS}"))

    def read(self, item_id: str) -> Answer:
        """The answer to an item.

        Raises:
            FoundryError: a damaged file, or an image that is missing or damaged.
        """
        folder = self.path / item_id
        results = _parsed(folder / _RESULTS)
        images = (read_image(folder / name, item_id) for name in results.prediction_image_list)
        return tuple(_steps(results.model_output, images))


def _output(answer: Answer, first: int) -> str:
    """The steps in one line; "(2) " within a text becomes "2) ", or the scorer counts a step."""
    lines = []
    for number, step in enumerate(answer, first):
        text = _STEP.sub(r"\1) ", " ".join(step.text.split()) + " ").strip()
        parts = (f"({number})", text, MARKER if step.image else "")
        lines.append(" ".join(filter(None, parts)))
    return " ".join(lines)


def _written(folder: Path, answer: Answer, first: int) -> list[str]:
    names = []
    for number, step in enumerate(answer, first):
        if step.image is not None:
            names.append(f"predict_{number}.{_EXTENSIONS.get(step.image.mime, 'png')}")
            atomic_write(folder / names[-1], step.image.data)
    return names


def _copied(folder: Path, name: str, first: int, images: Sequence[Path]) -> list[str]:
    """Copy the images that are there to `origin`; their names."""
    names = []
    for number, path in enumerate(images, first):
        if path.is_file():
            names.append(f"{name}_{number}{path.suffix or '.jpg'}")
            atomic_write(folder / "origin" / names[-1], path.read_bytes())
    return names


def _parsed(file: Path) -> _Results:
    try:
        return _Results.model_validate_json(file.read_bytes())
    except OSError as error:
        raise FoundryError(f"{file}: cannot be read ({error.strerror}); copy it again") from error
    except ValidationError as error:
        problem = first_problem(error, root="answer")
        raise FoundryError(f"{file}: {problem}; write it again") from error


def _steps(output: str, images: Iterator[EncodedImage]) -> Iterator[AnswerStep]:
    """The steps of an answer; of several images of a step, each but the first is one of its own.

    Like in the official scorer, markers without an image are dropped, and images without a marker.
    """
    for text in split_steps(output):
        found = [image for _ in range(text.count(MARKER)) if (image := next(images, None))]
        words = " ".join(text.replace(MARKER, " ").split())
        yield AnswerStep(words, found[0] if found else None)
        yield from (AnswerStep("", image) for image in found[1:])


def split_steps(output: str) -> list[str]:
    """What follows each step's number; a number that does not count on belongs to the text."""
    starts: list[re.Match[str]] = []
    for match in _STEP.finditer(output + " "):
        if not starts or int(match[1]) == int(starts[-1][1]) + 1:
            starts.append(match)
    ends = [match.start() for match in starts[1:]] + [len(output)]
    return [output[match.end() : end] for match, end in zip(starts, ends, strict=True)]
