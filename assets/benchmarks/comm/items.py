"""CoMM's items: documents of steps with images, given in part according to the task."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inference.agent_prompts.templates import escape_tags
from schemas.errors import FoundryError, first_problem

from ...curation.comm import read_documents

Task = Literal[1, 2, 3, 4]
MAX_IMAGES = 10  # that a judge is shown of a document
_SUFFIXES = (".pt", ".pth", ".json", ".jsonl")
_REQUESTS = {
    1: ("The images of instructions about {title}, step by step:", "Write the text of every step."),
    2: ("The texts of instructions about {title}, step by step:", "Make the image of every step."),
    3: (
        "The first steps of instructions about {title}, with images:",
        "Continue with the remaining steps, counting on, each with a text and an image.",
    ),
    4: ("Write instructions about {title}, step by step, each step with a text and an image.", ""),
}


class Content(BaseModel):
    """A text, or an image: a file below the image folder, or known only by its URL."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: Literal["text", "image"]
    content: str | None = None
    url: str | None = None
    image_path: str | None = None

    @property
    def text(self) -> str:
        """The words of a text in one line; empty for an image."""
        return " ".join((self.content or "").split()) if self.type == "text" else ""


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    data_id: str = Field(pattern=r"^[^/\\]+$")
    dataset_type: str | None = None
    title: str | None = None
    summary_info: list[Content] = []
    step_info: tuple[tuple[Content, ...], ...] = Field(min_length=1)


@dataclass(frozen=True)
class CommItem:
    """A document and what of it a system is given.

    Args:
        item_id: the document's id and the task, as folders of answers are named: `17_task3`.
        given: how many of the steps a system gets in full (task 3), otherwise 0.
        folder: where the documents' images are.
    """

    item_id: str
    task: Task
    group: str
    title: str
    steps: tuple[tuple[Content, ...], ...]
    given: int
    folder: Path

    @property
    def input(self) -> list[list[Content]]:
        """The contents that a system gets, a list a step."""
        if self.task == 3:
            return [list(step) for step in self.steps[: self.given]]
        wanted = {1: "image", 2: "text"}.get(self.task)
        return [[c for c in step if c.type == wanted] for step in self.steps] if wanted else []

    @property
    def input_images(self) -> tuple[Path, ...]:
        return self._paths(self.input)

    @property
    def reference_images(self) -> tuple[Path, ...]:
        """The document's images that a system is to make; they need not be there."""
        return () if self.task == 1 else self._paths(self.steps[self.given :])

    @property
    def introduction(self) -> str:
        """The first line of what a system is asked."""
        return _REQUESTS[self.task][0].format(title=self.title)

    def text(self, marker: str) -> str:
        """What a system is asked, `marker` in the place of each image."""
        lines = (f"({n}) {_line(step, marker)}".rstrip() for n, step in enumerate(self.input, 1))
        parts = (self.introduction, *lines, _REQUESTS[self.task][1])
        return "\n".join(part for part in parts if part)

    def _paths(self, steps: Sequence[Sequence[Content]]) -> tuple[Path, ...]:
        images = [content for step in steps for content in step if content.type == "image"]
        return tuple(_image_file(self.folder, content) for content in images)


def load(source: Path, task: Task) -> list[CommItem]:
    """The items of a task, in the file's order.

    In task 3 the first half of the steps is given, as officially. Left out, since the protocol has
    no use for them: in task 1 documents without images; in task 3 those of a single step, without
    an image in the second half, or with as many in the first as a judge is shown.

    Args:
        source: the file of a split (.pt, .json or .jsonl), or a folder with the one of the test
            split. Its images lie beside it, or in `images` beside it.

    Raises:
        FoundryError: a missing or damaged file, a document twice, or a given image that is missing.
    """
    path = _data_file(source)
    images = path.parent / "images"
    documents = [_document(path, n, raw) for n, raw in enumerate(read_documents(path), 1)]
    items = [
        item
        for document in documents
        if (item := _item(document, task, images if images.is_dir() else path.parent)) is not None
    ]
    _check_unique(path, items)
    _check_images(path, items)
    if not items:
        raise FoundryError(f"{path}: has no documents for task {task} of CoMM; copy it again")
    return items


def _line(step: Sequence[Content], marker: str) -> str:
    return " ".join(marker if c.type == "image" else escape_tags(c.text) for c in step)


def _image_file(folder: Path, content: Content) -> Path:
    path = folder / (content.image_path or "")
    # Paths may count from the folder above, as in `images/a.jpg`.
    return path if path.is_file() else folder.parent / (content.image_path or "")


def _data_file(source: Path) -> Path:
    if source.is_file():
        return source
    files = sorted(p for p in source.glob("*") if p.suffix in _SUFFIXES) if source.is_dir() else []
    tests = [path for path in files if "test" in path.stem]
    found = tests or files
    if len(found) != 1:
        raise FoundryError(
            f"{source}: has {len(found)} files of CoMM's documents; name the one of the test split"
        )
    return found[0]


def _document(path: Path, number: int, raw: object) -> _Document:
    try:
        return _Document.model_validate(raw)
    except ValidationError as error:
        problem = first_problem(error)
        raise FoundryError(f"{path}: document {number}: {problem}; copy the file again") from error


def _item(document: _Document, task: Task, folder: Path) -> CommItem | None:
    steps = document.step_info
    given = len(steps) // 2 if task == 3 else 0
    if (task == 3 and not _can_continue(steps, given)) or (task == 1 and not _image_count(steps)):
        return None
    summary = next((content.text for content in document.summary_info if content.text), "")
    title = " ".join((document.title or "").split()) or summary or document.data_id
    group = document.dataset_type or "all"
    item_id = f"{document.data_id}_task{task}"
    return CommItem(item_id, task, group, escape_tags(title), steps, given, folder)


def _can_continue(steps: Sequence[Sequence[Content]], given: int) -> bool:
    """Whether a judge is shown an image of both parts at least."""
    return (
        given > 0 and _image_count(steps[:given]) < MAX_IMAGES and _image_count(steps[given:]) > 0
    )


def _image_count(steps: Sequence[Sequence[Content]]) -> int:
    return sum(content.type == "image" for step in steps for content in step)


def _check_unique(path: Path, items: Sequence[CommItem]) -> None:
    seen: set[str] = set()
    for item in items:
        if item.item_id in seen:
            raise FoundryError(f"{path}: item {item.item_id} is there twice; remove one")
        seen.add(item.item_id)


def _check_images(path: Path, items: Sequence[CommItem]) -> None:
    missing = [
        (item.item_id, content.image_path or content.url or "without path or URL")
        for item in items
        for step in item.input
        for content in step
        if content.type == "image" and not _image_file(item.folder, content).is_file()
    ]
    if missing:
        item_id, name = missing[0]
        more = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
        raise FoundryError(
            f"{path}: item {item_id}: its image {name} is not there{more}; download the images "
            f"as CoMM's download_images.py does into {path.parent / 'images'}"
        )
