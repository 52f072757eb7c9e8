"""OpenING's items, read from the official files."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.errors import FoundryError, first_problem
from warehouse import EncodedImage

Split = Literal["test", "dev"]

# Topic -> how many tasks it has; tasks are numbered from 1 (56 in all).
TASKS_PER_TOPIC = dict(
    enumerate((2, 3, 2, 2, 4, 2, 5, 2, 2, 5, 4, 1, 1, 3, 2, 2, 3, 2, 3, 2, 2, 1, 1), 1)
)
_MARKER = re.compile(r"[ \t]*(?:<BEGIN>|<image>)[ \t]*")  # of the files; no part of what is asked
_FOLDERS = ("", "OpenING-benchmark", "OpenING-Benchmark")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(_Model):
    """A text and the picture after it, a path relative to the data file, if there is one."""

    text: str
    image: str | None

    @property
    def plain_text(self) -> str:
        """The text without the files' markers."""
        return _MARKER.sub(" ", self.text).strip()


class Input(_Model):
    """What is asked."""

    input: tuple[Part, ...] = Field(min_length=1)


class Output(_Model):
    """What people answered, or a system."""

    output: tuple[Part, ...]


class OpeningItem(_Model):
    """One line of an official data file."""

    total_uid: str
    meta_task_id: str = Field(pattern=r"^\d{1,2}$")
    meta_task_name: str
    subtask_id: str = Field(pattern=r"^\d{1,2}$")
    subtask_name: str
    data_id: str = Field(pattern=r"^\d{1,3}$")
    conversations: tuple[Input, Output]

    @model_validator(mode="after")
    def _check_numbers(self) -> Self:
        topic, task = int(self.meta_task_id), int(self.subtask_id)
        if not 1 <= task <= TASKS_PER_TOPIC.get(topic, 0):
            raise ValueError(f"no task {task} of a topic {topic} exists in OpenING")
        if self.total_uid != f"{self.task_id}{int(self.data_id):03d}":
            raise ValueError(f"total_uid {self.total_uid} does not follow from the other ids")
        if not self.reference:
            raise ValueError("the reference answer has no steps")
        return self

    @property
    def task_id(self) -> str:
        """Topic and task, two digits each, such as `0301`."""
        return f"{int(self.meta_task_id):02d}{int(self.subtask_id):02d}"

    @property
    def input(self) -> tuple[Part, ...]:
        return self.conversations[0].input

    @property
    def reference(self) -> tuple[Part, ...]:
        """What people answered."""
        return self.conversations[1].output

    @property
    def expected_steps(self) -> int:
        """How many steps people answered with. The official generators are told this number."""
        return len(self.reference)

    @property
    def input_images(self) -> tuple[str, ...]:
        """Paths relative to the data file, in order."""
        return tuple(part.image for part in self.input if part.image is not None)

    def request(self, tell_steps: bool = True) -> str:
        """What a system is asked, `<image>` in the place of each picture."""
        lines = [f"{p.plain_text} <image>" if p.image else p.plain_text for p in self.input]
        if tell_steps:
            steps = "1 step" if self.expected_steps == 1 else f"{self.expected_steps} steps"
            lines.append(f"Answer in about {steps}, each a text with one image.")
        return "\n".join(lines)


def load(source: Path, split: Split = "test", *, require_images: bool = True) -> list[OpeningItem]:
    """The items of a split, in the file's order.

    Args:
        source: a copy of the official repository, its data folder, or a snapshot of the Hub.
        require_images: whether every picture of an input must be there.

    Raises:
        FoundryError: a missing or damaged file, an unknown value, an item twice or a missing
            picture, in one line with the file, the item and what to do.
    """
    path = data_file(source, split)
    items = [_item(path, number, line) for number, line in _lines(path)]
    if not items:
        raise FoundryError(f"{path}: has no items; copy the official file again")
    _check_unique(path, items)
    if require_images:
        _check_images(path, items)
    return items


def data_file(source: Path, split: Split = "test") -> Path:
    """The official file of a split; FoundryError if `source` has none."""
    name = f"{split}_data.jsonl"
    found = [path for folder in _FOLDERS if (path := source / folder / name).is_file()]
    if not found:
        raise FoundryError(
            f"{source}: has no {name} of OpenING; give the folder of the official repository"
        )
    return found[0]


def load_images(source: Path, item: OpeningItem, split: Split = "test") -> list[EncodedImage]:
    """The pictures of an item's input, in order.

    Raises:
        FoundryError: a picture is missing or unreadable.
        BadImageError: a picture does not decode.
    """
    folder = data_file(source, split).parent
    return [read_image(folder / name, item.total_uid) for name in item.input_images]


def read_image(path: Path, item_id: str) -> EncodedImage:
    """A picture of an item, decoded once; FoundryError: it is missing, unreadable or damaged."""
    try:
        image = EncodedImage(path.read_bytes())
        _ = image.image
    except OSError as error:
        raise FoundryError(
            f"{path}: picture of item {item_id} cannot be read ({error.strerror}); copy it again"
        ) from error
    except FoundryError as error:
        raise FoundryError(
            f"{path}: picture of item {item_id} is damaged ({error}); copy it again"
        ) from error
    return image


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise FoundryError(f"{path}: cannot be read ({error}); copy it again") from error
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _item(path: Path, number: int, line: str) -> OpeningItem:
    try:
        return OpeningItem.model_validate_json(line)
    except ValidationError as error:
        problem = first_problem(error, root="item")
        raise FoundryError(
            f"{path}: item in line {number}: {problem}; copy the official file again"
        ) from error


def _check_unique(path: Path, items: Sequence[OpeningItem]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.total_uid in seen:
            raise FoundryError(f"{path}: item {item.total_uid} is there twice; remove one")
        seen.add(item.total_uid)


def _check_images(path: Path, items: Sequence[OpeningItem]) -> None:
    missing = [
        (item.total_uid, name)
        for item in items
        for name in item.input_images
        if not (path.parent / name).is_file()
    ]
    if missing:
        item_id, name = missing[0]
        more = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
        raise FoundryError(
            f"{path}: item {item_id}: its picture {name} is missing{more}; "
            "unpack OpenING's images beside the file"
        )
