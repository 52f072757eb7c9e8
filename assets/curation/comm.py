"""Importer for interleaved documents in CoMM's format (paper, reference 43).

A document is `{"data_id", "dataset_type", "title", "summary_info", "step_info"}`, where
`step_info` lists steps and a step lists contents: `{"type": "text", "content": ...}` or
`{"type": "image", "image_path": ..., "url": ...}`. Files are JSON, JSON lines, or a torch-saved
list (`.pt`), which is read without executing what it pickles.

CoMM has pictures and words, but no prompts to draw with. So a document becomes the planner's
words-for-pictures task: the series of pictures is given, the text of every step is asked for.
Whatever does not fit is set aside with its reason, never guessed at; nothing is downloaded.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inference.agent_prompts import IMAGE, escape_tags, planner_answer, planner_prompt
from inference.roles import Plan, PlanStep
from schemas import BadImageError, FoundryError
from schemas.curation import ChatMessageRow, PlannerSftRow
from warehouse import EncodedImage, Home

from .settings import CommSettings


@dataclass(frozen=True)
class Imported:
    """Rows made, and documents set aside as (id, reason)."""

    rows: list[PlannerSftRow] = field(default_factory=list)
    quarantined: list[tuple[str, str]] = field(default_factory=list)


class _Content(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    type: str
    content: str | None = None
    image_path: str | None = None


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    data_id: str | int
    title: str | None = None
    step_info: list[list[_Content]] = Field(min_length=1)


class _Unusable(Exception):  # noqa: N818 - a document's fate, not a failure of ours
    """Why a document is set aside."""


def import_comm(home: Home, settings: CommSettings, agent_prompt: str) -> Imported:
    """Documents of the settings' file as planner rows; their pictures enter the image store.

    Raises:
        FoundryError: the file as a whole cannot be read.
    """
    imported = Imported()
    if settings.path is None:
        return imported
    images = (settings.images or settings.path.parent).resolve()
    seen: set[str] = set()
    for place, raw in enumerate(_documents(settings.path)):
        name = f"comm:{_id_of(raw) or f'document {place}'}"
        try:
            if name in seen:
                raise _Unusable("another document has the same data_id")
            seen.add(name)
            document = _checked(raw, settings.max_steps)
            imported.rows.append(_row(home, name, document, images, agent_prompt))
        except (_Unusable, BadImageError) as error:
            imported.quarantined.append((name, str(error)))
    return imported


def _documents(path: Path) -> Iterator[Any]:
    try:
        if path.suffix in (".pt", ".pth"):
            documents = _load_torch(path)
        elif path.suffix == ".jsonl":
            documents = [_parsed(line) for line in path.read_text("utf-8").splitlines() if line]
        else:
            documents = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise FoundryError(f"{path}: cannot be read as CoMM documents: {error}") from error
    if not isinstance(documents, list):
        raise FoundryError(f"{path}: is not a list of CoMM documents")
    return iter(documents)


def _load_torch(path: Path) -> Any:
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise FoundryError(
            f"{path}: reading .pt files needs torch; install it or save the documents as JSON"
        ) from error
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(str(error).splitlines()[0]) from error


def _parsed(line: str) -> Any:
    """A JSON line; a broken one becomes a document that fails its check."""
    try:
        return json.loads(line)
    except ValueError:
        return line


def _id_of(raw: Any) -> str:
    found = raw.get("data_id") if isinstance(raw, dict) else None
    return str(found) if isinstance(found, str | int) else ""


def _checked(raw: Any, max_steps: int) -> _Document:
    try:
        document = _Document.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise _Unusable(f"{where}: {first['msg']}") from error
    if len(document.step_info) > max_steps:
        raise _Unusable(f"{len(document.step_info)} steps, more than {max_steps}")
    return document


def _row(
    home: Home, name: str, document: _Document, images: Path, agent_prompt: str
) -> PlannerSftRow:
    pictures = [_pictures_of(step, images) for step in document.step_info]
    texts = [_text_of(step) for step in document.step_info]
    if not any(pictures):
        raise _Unusable("no pictures")
    for number, text in enumerate(texts, 1):
        if not text:
            raise _Unusable(f"step {number} has no text")
    steps = tuple(
        PlanStep(number, f"Step {number}", None, None, text) for number, text in enumerate(texts, 1)
    )
    question = planner_prompt(_request(document.title, pictures), agent_prompt)
    return PlannerSftRow(
        row_id=name,
        source="comm",
        prompt_id=None,
        plan_id=None,
        trajectory_id=None,
        cut=0,
        messages=[
            ChatMessageRow(role="user", content=question.text),
            ChatMessageRow(role="assistant", content=planner_answer(Plan(steps))),
        ],
        images=[home.images.put(picture) for step in pictures for picture in step],
        agent_prompt_version=question.version,
    )


def _request(title: str | None, pictures: list[list[EncodedImage]]) -> str:
    about = f' about "{escape_tags(title.strip())}"' if title and title.strip() else ""
    lines = [f"Here is a complete series of pictures{about}. Write the text of every step."]
    lines += [f"{n}. {IMAGE * len(step)}".rstrip() for n, step in enumerate(pictures, 1)]
    return "\n".join(lines)


def _text_of(step: list[_Content]) -> str:
    texts = [content.content for content in step if content.type == "text" and content.content]
    return " ".join(" ".join(texts).split())


def _pictures_of(step: list[_Content], images: Path) -> list[EncodedImage]:
    return [_picture(content.image_path, images) for content in step if content.type == "image"]


def _picture(name: str | None, images: Path) -> EncodedImage:
    if not name:
        raise _Unusable("a picture without image_path")
    try:
        path = (images / name).resolve()
        if not path.is_relative_to(images):
            raise _Unusable(f"image_path {name!r} leads out of the image folder")
        picture = EncodedImage(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _Unusable(f"picture {name!r} cannot be read") from error
    return EncodedImage.of(picture.image)
