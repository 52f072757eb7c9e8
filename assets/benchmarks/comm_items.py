"""CoMM's documents, and what of them a system gets in a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from inference.agent_prompts.templates import escape_tags
from schemas.errors import FoundryError

from ..curation.comm import read_documents
from . import files
from .judge_text import read_prompts

Task = Literal[1, 2, 3, 4]
MAX_IMAGES = 10  # that a judge is shown
PROMPTS = read_prompts("comm")


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


_Steps = Sequence[Sequence[Content]]


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    data_id: str = Field(pattern=r"^[^/\\]+$")
    dataset_type: str | None = None
    title: str | None = None
    summary_info: list[Content] = []
    step_info: tuple[tuple[Content, ...], ...] = Field(min_length=1)

    @property
    def topic(self) -> str:
        summary = next((content.text for content in self.summary_info if content.text), "")
        title = " ".join((self.title or "").split()) or summary or self.data_id
        return escape_tags(title)


@dataclass(frozen=True)
class CommItem:
    """A document, and what of it a system is given in a task.

    Args:
        folder: where the documents' images are.
    """

    document: _Document
    task: Task
    folder: Path

    @property
    def item_id(self) -> str:
        """As folders of answers are named: `17_task3`."""
        return f"{self.document.data_id}_task{self.task}"

    @property
    def given(self) -> int:
        """How many of the steps a system gets in full: in task 3 the first half."""
        return len(self.document.step_info) // 2 if self.task == 3 else 0

    @property
    def input(self) -> list[list[Content]]:
        """The contents that a system gets, a list a step."""
        steps = self.document.step_info
        if self.task == 3:
            return [list(step) for step in steps[: self.given]]
        wanted = {1: "image", 2: "text"}.get(self.task)
        return [[c for c in step if c.type == wanted] for step in steps] if wanted else []

    @property
    def has_use(self) -> bool:
        """Whether the protocol has a use for it.

        It has none in task 1 for documents without images; in task 3 for those of a single step,
        without an image in the second half, or with as many in the first as a judge is shown.
        """
        steps, given = self.document.step_info, self.given
        if self.task == 3:
            images = len(images_of(steps[:given])), len(images_of(steps[given:]))
            return given > 0 and images[0] < MAX_IMAGES and images[1] > 0
        return self.task != 1 or bool(images_of(steps))

    @property
    def input_images(self) -> tuple[Path, ...]:
        return self.files(self.input)

    @property
    def reference_images(self) -> tuple[Path, ...]:
        """The document's images that a system is to make; they need not be there."""
        return () if self.task == 1 else self.files(self.document.step_info[self.given :])

    @property
    def introduction(self) -> str:
        """The first line of what a system is asked."""
        return PROMPTS[f"task_{self.task}"].format(title=self.document.topic)

    def text(self, marker: str) -> str:
        """What a system is asked, `marker` in the place of each image."""
        lines = [
            " ".join(marker if c.type == "image" else escape_tags(c.text) for c in step)
            for step in self.input
        ]
        numbered = [f"({number}) {line}".rstrip() for number, line in enumerate(lines, 1)]
        ending = PROMPTS.get(f"task_{self.task}_ending")
        return "\n".join(filter(None, (self.introduction, *numbered, ending)))

    def files(self, steps: _Steps) -> tuple[Path, ...]:
        """The files of the images of some steps."""
        return tuple(self._file(content.image_path or "") for content in images_of(steps))

    def _file(self, name: str) -> Path:
        path = self.folder / name
        # Paths may count from the folder above, as in `images/a.jpg`.
        return path if path.is_file() else self.folder.parent / name


def load_items(source: Path, task: Task, benchmark: str) -> dict[str, CommItem]:
    """The items of a task, in the file's order."""
    path = _data_file(source)
    images = path.parent / "images"
    folder = images if images.is_dir() else path.parent
    documents = files.parse_rows(path, read_documents(path), _Document)
    items = [item for each in documents if (item := CommItem(each, task, folder)).has_use]
    found = files.by_id(path, benchmark, items, lambda item: item.item_id)
    pictures = (
        (item.item_id, content.image_path or content.url or "without path or URL", file)
        for item in items
        for content, file in zip(images_of(item.input), item.input_images, strict=True)
    )
    hint = f"download the images as CoMM's download_images.py does into {images}"
    files.check_pictures(path, pictures, hint)
    return found


def _data_file(source: Path) -> Path:
    if source.is_file():
        return source
    suffixes = (".pt", ".pth", ".json", ".jsonl")
    paths = sorted(p for p in source.glob("*") if p.suffix in suffixes) if source.is_dir() else []
    found = [path for path in paths if "test" in path.stem] or paths
    if len(found) != 1:
        raise FoundryError(
            f"{source}: has {len(found)} files of CoMM's documents; name the one of the test split"
        )
    return found[0]


def images_of(steps: _Steps) -> list[Content]:
    return [content for step in steps for content in step if content.type == "image"]
