"""A system's answers in the layout that the official scorer reads.

`<root>/<system>_output/<total_uid>.json` repeats the item and holds the steps of the answer; the
pictures lie beside it. Other systems' answers are imported from the same layout.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import FoundryError, first_problem
from warehouse.atomic import atomic_write

from ..benchmark import AnswerStep
from .items import OpeningItem, Output, Part, read_image

SUFFIX = "_output"
_FILES = (".json", ".jsonl")  # some systems' official examples are named .jsonl; one object as well
_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}


class _AnswerFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    conversations: tuple[Any, Output]


@dataclass(frozen=True)
class OutputFolder:
    """The answers of one system below `root`, one file an item."""

    root: Path
    system: str

    def __post_init__(self) -> None:
        if not self.system or Path(self.system).name != self.system:
            raise FoundryError(f"system name {self.system!r}: must be usable as a folder's name")

    @classmethod
    def open(cls, folder: Path) -> "OutputFolder":
        """An existing `<system>_output`; FoundryError: no such folder, or one named otherwise."""
        if not folder.is_dir():
            raise FoundryError(f"{folder}: is not a folder; give a system's answers of OpenING")
        if not folder.name.endswith(SUFFIX):
            raise FoundryError(f"{folder}: must be named <system>{SUFFIX}; rename it")
        return cls(folder.parent, folder.name.removesuffix(SUFFIX))

    @property
    def path(self) -> Path:
        return self.root / f"{self.system}{SUFFIX}"

    def write(self, item: OpeningItem, answer: Sequence[AnswerStep]) -> Path:
        """Write an answer; its JSON file comes last, so that one that is there is complete."""
        steps = [self._write_step(item, number, step) for number, step in enumerate(answer)]
        content = item.model_dump(mode="json")
        content["conversations"] = [item.conversations[0].model_dump(), {"output": steps}]
        path = self.path / f"{item.total_uid}.json"
        atomic_write(path, json.dumps(content, ensure_ascii=False, indent=1))
        return path

    def item_ids(self) -> list[str]:
        """The items with an answer, sorted."""
        return sorted({file.stem for file in self.path.iterdir() if file.suffix in _FILES})

    def read(self, item_id: str) -> tuple[AnswerStep, ...] | None:
        """The answer to an item; None: there is none.

        Raises:
            FoundryError: a damaged file, or a picture that is missing or damaged.
        """
        file = self._file(item_id)
        if file is None:
            return None
        return tuple(self._step(item_id, part) for part in _parsed(file).conversations[1].output)

    def _write_step(self, item: OpeningItem, number: int, step: AnswerStep) -> dict[str, object]:
        if step.image is None:
            return {"text": step.text, "image": None}
        extension = _EXTENSIONS.get(step.image.mime, "png")
        name = f"{item.total_uid}-o-{number}.{extension}"
        atomic_write(self.path / name, step.image.data)
        return {"text": step.text, "image": name}

    def _step(self, item_id: str, part: Part) -> AnswerStep:
        if not part.image:
            return AnswerStep(part.plain_text)
        # Like the official scorer: by its name alone, beside the file.
        name = part.image.replace("\\", "/").rsplit("/", 1)[-1]
        return AnswerStep(part.plain_text, read_image(self.path / name, item_id))

    def _file(self, item_id: str) -> Path | None:
        files = (self.path / f"{item_id}{suffix}" for suffix in _FILES)
        return next((file for file in files if file.is_file()), None)


def _parsed(file: Path) -> _AnswerFile:
    try:
        return _AnswerFile.model_validate_json(file.read_bytes())
    except OSError as error:
        raise FoundryError(f"{file}: cannot be read ({error.strerror}); copy it again") from error
    except ValidationError as error:
        problem = first_problem(error, root="answer")
        raise FoundryError(f"{file}: {problem}; write it again") from error
