"""Importer for interleaved documents in CoMM's format (paper, reference 43).

A document is `{"data_id", "dataset_type", "title", "summary_info", "step_info"}`, where
`step_info` lists steps and a step lists contents: `{"type": "text", "content": ...}` or
`{"type": "image", "image_path": ..., "url": ...}`. Files are JSON, JSON lines, or a torch-saved
list (`.pt`), which is read without executing what it pickles.

CoMM has images and texts, but no prompts for a generator. So a document becomes a planner sample
that asks for the text of every step of a given series of images; nothing is downloaded.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from inference.agent_prompts.formatting import planner_answer
from inference.agent_prompts.templates import IMAGE, RenderedPrompt, escape_tags, planner_prompt
from inference.roles import Plan, PlanStep
from schemas import BadImageError, FoundryError
from schemas.curation import ChatMessageRow, PlannerSftRow
from schemas.errors import first_problem
from warehouse import EncodedImage, Home

from .settings import CommSettings


class _Content(BaseModel, strict=True):
    type: str
    content: str | None = None
    image_path: str | None = None


class _Document(BaseModel, strict=True):
    data_id: str | int
    title: str | None = None
    step_info: list[list[_Content]] = Field(min_length=1)


class _UnusableDocumentError(Exception):
    """Why a document is quarantined."""


def import_comm(
    home: Home, settings: CommSettings, agent_prompt: str
) -> tuple[list[PlannerSftRow], list[tuple[str, str]]]:
    """Rows of the settings' file, and quarantined documents as (id, reason); stores the images.

    Raises:
        FoundryError: the file cannot be read.
    """
    rows: list[PlannerSftRow] = []
    quarantined: list[tuple[str, str]] = []
    if settings.path is None:
        return rows, quarantined
    images = (settings.images or settings.path.parent).resolve()
    names: set[str] = set()
    for index, raw in enumerate(read_documents(settings.path)):
        data_id = raw.get("data_id") if isinstance(raw, dict) else None
        usable = data_id != "" and isinstance(data_id, str | int)
        name = f"comm:{data_id}" if usable else f"comm:document {index}"
        try:
            if name in names:
                raise _UnusableDocumentError("another document has the same data_id")
            names.add(name)
            document = _Document.model_validate(raw)
            if len(steps := document.step_info) > settings.max_steps:
                raise _UnusableDocumentError(f"{len(steps)} steps, more than {settings.max_steps}")
            rows.append(_row(home, name, document, images, agent_prompt))
        except ValidationError as error:
            quarantined.append((name, first_problem(error)))
        except (_UnusableDocumentError, BadImageError) as error:
            quarantined.append((name, str(error)))
    return rows, quarantined


def planner_row(prompt: RenderedPrompt, plan: Plan, **columns: Any) -> PlannerSftRow:
    """A sample whose answer is `plan`; `columns` are the others of the row."""
    messages = [
        ChatMessageRow(role="user", content=prompt.text),
        ChatMessageRow(role="assistant", content=planner_answer(plan)),
    ]
    return PlannerSftRow(messages=messages, agent_prompt_version=prompt.version, **columns)


def read_documents(path: Path) -> list[Any]:
    """The documents of a .pt, .json or .jsonl file, unchecked; FoundryError: it is none of them."""
    try:
        if path.suffix in (".pt", ".pth"):
            documents = _load_torch(path)
        elif path.suffix == ".jsonl":
            documents = [_parse_line(line) for line in path.read_text("utf-8").splitlines() if line]
        else:
            documents = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise FoundryError(f"{path}: cannot be read as CoMM documents: {error}") from error
    if not isinstance(documents, list):
        raise FoundryError(f"{path}: is not a list of CoMM documents")
    return documents


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


def _parse_line(line: str) -> Any:
    """A JSON line; a broken one is returned as text, which is no valid document."""
    try:
        return json.loads(line)
    except ValueError:
        return line


def _row(
    home: Home, name: str, document: _Document, images: Path, agent_prompt: str
) -> PlannerSftRow:
    step_images = [
        [_read_image(content.image_path, images) for content in step if content.type == "image"]
        for step in document.step_info
    ]
    texts = [_text_of(step) for step in document.step_info]
    if not any(step_images):
        raise _UnusableDocumentError("no images")
    if "" in texts:
        raise _UnusableDocumentError(f"step {texts.index('') + 1} has no text")
    steps = tuple(PlanStep(n, f"Step {n}", None, None, text) for n, text in enumerate(texts, 1))
    prompt = planner_prompt(_request(document.title, step_images), agent_prompt)
    origin = dict.fromkeys(("prompt_id", "plan_id", "trajectory_id"))
    stored = [home.images.put(image) for step in step_images for image in step]
    return planner_row(
        prompt, Plan(steps), row_id=name, source="comm", cut=0, images=stored, **origin
    )


def _request(title: str | None, step_images: list[list[EncodedImage]]) -> str:
    about = f' about "{escape_tags(title.strip())}"' if title and title.strip() else ""
    lines = [f"Here is a complete series of pictures{about}. Write the text of every step."]
    lines += [f"{n}. {IMAGE * len(step)}".rstrip() for n, step in enumerate(step_images, 1)]
    return "\n".join(lines)


def _text_of(step: list[_Content]) -> str:
    texts = [content.content for content in step if content.type == "text" and content.content]
    return " ".join(" ".join(texts).split())


def _read_image(name: str | None, folder: Path) -> EncodedImage:
    if not name:
        raise _UnusableDocumentError("an image without image_path")
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise _UnusableDocumentError(f"image_path {name!r} is outside of the image folder")
        encoded = EncodedImage(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _UnusableDocumentError(f"image {name!r} cannot be read") from error
    return EncodedImage.of(encoded.image)
