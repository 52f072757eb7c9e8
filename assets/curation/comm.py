"""Importer for interleaved documents in CoMM's format (paper, reference 43).

A document is `{"data_id", "dataset_type", "title", "summary_info", "step_info"}`, where
`step_info` lists steps and a step lists contents: `{"type": "text", "content": ...}` or
`{"type": "image", "image_path": ..., "url": ...}`. Files are JSON, JSON lines, or a torch-saved
list (`.pt`), which is read without executing what it pickles.

A document becomes one planner sample, of one of two kinds, as `source` of the row says:

- `comm`: all images are given, the texts of all steps are the answer (nothing is drawn);
- `comm_continuation`: the first steps are given, texts and images, and the others are the answer, a
  plan whose numbers go on from the cut (CoMM's task 3; paper, section 3.2).

CoMM has no prompts for a generator: the text of a step with images is instruction, prompt and text
of the planned step; a step without images is text alone. Nothing is downloaded.
"""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from inference.agent_prompts.formatting import planner_answer
from inference.agent_prompts.templates import IMAGE, RenderedPrompt, escape_tags, planner_prompt
from inference.calls.hashing import unit_interval
from inference.roles import Plan, PlanStep
from schemas import BadImageError, FoundryError
from schemas.curation import ChatMessageRow, PlannerSftRow
from schemas.errors import first_problem
from warehouse import EncodedImage, Home

from ..core.row_files import read_rows
from .settings import CommSettings

# What documents number their steps by: "Step 3: ", "(3) ", "3. ". A plan's texts have none of it.
_LEAD_IN = re.compile(r"^(?:step\s*\d+\s*[:.)\-\u2013]|\(\d+\)|\d+[.):](?=\s))\s*", re.IGNORECASE)


class _Content(BaseModel, strict=True):
    type: str
    content: str | None = None
    image_path: str | None = None


class _Document(BaseModel, strict=True):
    data_id: str | int
    title: str | None = None
    step_info: list[list[_Content]] = Field(min_length=1)

    def has_image(self, number: int) -> bool:
        """Whether a step, counted from 1, has an image."""
        return any(content.type == "image" for content in self.step_info[number - 1])


class _UnusableDocumentError(Exception):
    """Why a document is quarantined."""


def import_comm(
    home: Home, settings: CommSettings, agent_prompt: str, seed: int = 0
) -> tuple[list[PlannerSftRow], list[tuple[str, str]]]:
    """Rows of the settings' file, and quarantined documents as (id, reason); stores the images.

    Args:
        seed: which documents are continued, and where they are cut.

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
            cut = _cut(document, name, settings.continuation_share, seed)
            rows.append(_row(home, name, document, cut, images, agent_prompt))
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
        else:
            with path.open("rb") as file:
                return [*read_rows(str(path), file)]
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


def _cut(document: _Document, name: str, share: float, seed: int) -> int:
    """How many steps are given to be continued; 0: the document gives captions.

    There is an image before the cut and one after it.
    """
    drawn = [n for n in range(1, len(document.step_info) + 1) if document.has_image(n)]
    cuts = range(drawn[0], drawn[-1]) if drawn else range(0)
    if not cuts or unit_interval(f"{seed}/{name}/kind") >= share:
        return 0
    return cuts[int(unit_interval(f"{seed}/{name}/cut") * len(cuts))]


def _row(
    home: Home, name: str, document: _Document, cut: int, folder: Path, agent_prompt: str
) -> PlannerSftRow:
    given = document.step_info[:cut] if cut else document.step_info
    contents = [content for step in given for content in step if content.type == "image"]
    images = [_read_image(content.image_path, folder) for content in contents]
    if not images:
        raise _UnusableDocumentError("no images")
    texts = [_text_of(step) for step in document.step_info]
    if "" in texts:
        raise _UnusableDocumentError(f"step {texts.index('') + 1} has no text")
    steps = [
        _planned_step(number, text, drawn=bool(cut) and document.has_image(number))
        for number, text in enumerate(texts[cut:], cut + 1)
    ]
    request = _request(document, cut)
    return planner_row(
        planner_prompt(request, agent_prompt),
        Plan(tuple(steps)),
        row_id=name,
        source="comm_continuation" if cut else "comm",
        cut=cut,
        images=[home.images.put(image) for image in images],
        **dict.fromkeys(("prompt_id", "plan_id", "trajectory_id")),
    )


def _planned_step(number: int, text: str, drawn: bool) -> PlanStep:
    text = _LEAD_IN.sub("", text) or text
    prompt = text if drawn else None
    return PlanStep(number, f"Step {number}", prompt, prompt, text)


def _request(document: _Document, cut: int) -> str:
    """What the planner is asked; steps to be continued are laid out as in CoMM's task 3."""
    title = (document.title or "").strip()
    about = f' about "{escape_tags(title)}"' if title else ""
    if cut:
        given = enumerate(document.step_info[:cut], 1)
        lines = [f"These are the first steps{about}, with their pictures."]
        lines += [" ".join([f"({number})", *map(_shown, step)]) for number, step in given]
        return "\n".join([*lines, "Go on: plan all the steps that are missing, with their texts."])
    lines = [f"Here is a complete series of pictures{about}. Write the text of every step."]
    for number, step in enumerate(document.step_info, 1):
        lines.append(f"{number}. {IMAGE * sum(c.type == 'image' for c in step)}".rstrip())
    return "\n".join(lines)


def _shown(content: _Content) -> str:
    return IMAGE if content.type == "image" else escape_tags(_text_of([content]))


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
