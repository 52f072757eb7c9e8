"""Imports a file: its usable rows as a partition of `imports`, or as a prompt pack; and why the
others were rejected.

Training rows have the forms that LLaMA-Factory and the authors' GRPO read: `planner_sft.json`,
`critic_sft.json`, `critic_rl.jsonl`. Texts stay as they are, so that a model is trained on what its
own prompts and answers look like.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from inference.agent_prompts.formatting import parse_plan, read_verdict
from inference.agent_prompts.templates import IMAGE
from inference.calls.progress import Progress
from inference.roles import UnusableAnswerError
from schemas import FoundryError
from schemas.curation import IMPORTS, ChatMessageRow, Evaluation, ImportedRow, ImportKind
from schemas.errors import first_problem
from warehouse import EncodedImage, Home
from warehouse.atomic import atomic_path, atomic_write
from warehouse.storage import safe_name

from ..prompts.file_pack import IMAGES, INFO, PROMPTS_FILE, PackInfo
from ..prompts.pack import FilePrompt
from .source import WHITE, ImageFinder, SourceFile, UnusableRowError

_MAX_CHARACTERS = 32_000
_PLACEHOLDER = re.compile(re.escape(IMAGE), re.IGNORECASE)
_SIDES = {"human": "user", "gpt": "assistant"}  # of older sharegpt files


@dataclass(frozen=True)
class ImportResult:
    """What was imported; `rejected`: rows by their number, with the reason."""

    rows: int
    rejected: dict[int, str]
    unchanged: bool = False

    def write_rejected(self, path: Path) -> None:
        """A JSON line for each rejected row."""
        lines = [orjson.dumps({"row": n, "reason": why}) for n, why in self.rejected.items()]
        atomic_write(path, b"".join(line + b"\n" for line in lines))


def import_rows(
    home: Home, kind: ImportKind, file: SourceFile, name: str, licence: str, progress: Progress
) -> ImportResult:
    """Write the usable rows of a file as the import `name`, in place of its earlier rows.

    Nothing is seen of an import that is interrupted; its images are stored already.

    Raises:
        FoundryError: the file cannot be read, has no usable row, or the name is of another kind.
    """
    safe_name(name, "import")
    if home.lake.exists(IMPORTS, name):
        [other] = set(home.lake.read(IMPORTS, [name], ["kind"])["kind"].to_pylist())
        if other != kind:
            raise FoundryError(f"import {name} has rows of {other}: choose another --name")
    images = ImageFinder(file.images, home.images.put)
    shared: dict[str, Any] = {"name": name, "kind": kind, "licence": licence, "messages": []}
    shared |= {"source": file.label, "file_sha256": file.sha256}
    shared |= dict.fromkeys(("origin_prompt", "rewritten_prompt", "evaluation"))

    def read(number: int, row: Mapping[str, Any]) -> ImportedRow:
        own = _read_row(kind, row, images, home)
        return ImportedRow(**shared | {"row_id": f"{name}:{number}", "number": number} | own)

    rows, rejected = _read_all(file, read, progress)
    if not rows:
        reason = next((f"row {number}: {why}" for number, why in rejected.items()), "it is empty")
        raise FoundryError(f"{file.path} has no usable row; {reason}")
    before = home.lake.content_hash(IMPORTS, name)
    home.lake.write(IMPORTS, rows, name)
    return ImportResult(len(rows), rejected, before == home.lake.content_hash(IMPORTS, name))


def _read_all(
    file: SourceFile, read: Callable[[int, Mapping[str, Any]], Any], progress: Progress
) -> tuple[list[Any], dict[int, str]]:
    """What `read` makes of every row and its number, from 1; numbers of rejected rows, and why."""
    done, rejected = [], dict[int, str]()
    for number, row in enumerate(file.rows(), 1):
        try:
            if isinstance(row, str):
                raise UnusableRowError(row)
            done.append(read(number, row))
        except UnusableRowError as error:
            rejected[number] = str(error)
        # How many follow is not known.
        progress.update(number, number + 1, f"{len(rejected)} rejected")
    return done, rejected


class _Message(BaseModel):
    role: str
    content: str

    @classmethod
    def of(cls, message: Any) -> "_Message":
        if isinstance(message, dict) and "from" in message:
            side = message["from"]
            message = {"role": _SIDES.get(side, side), "content": message.get("value")}
        return cls.model_validate(message)


class _Truth(BaseModel):
    """Scores may be written as texts."""

    success: bool = Field(validation_alias=AliasChoices("success", "previous_step_success"))
    semantics: float = Field(
        ge=0, le=10, validation_alias=AliasChoices("semantics", "semantic_score")
    )
    quality: float = Field(ge=0, le=10, validation_alias=AliasChoices("quality", "quality_score"))


class _RlRow(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    origin_prompt: str = Field(min_length=1)
    rewritten_prompt: str | None = None
    origin_image_path: Any = None
    edited_image_path: Any
    evaluation: dict[str, Any]


def _read_row(
    kind: ImportKind, row: Mapping[str, Any], images: ImageFinder, home: Home
) -> dict[str, Any]:
    """Columns of `ImportedRow`: texts, images (which are stored) and ground truth.

    Raises:
        UnusableRowError: why it cannot be trained on.
    """
    try:
        return _read_rl(row, images, home) if kind == "critic_rl" else _read_sft(kind, row, images)
    except ValidationError as error:
        raise UnusableRowError(first_problem(error)) from error
    except UnusableAnswerError as error:
        raise UnusableRowError(f"the answer cannot be read: {error}") from error


def _read_sft(kind: ImportKind, row: Mapping[str, Any], images: ImageFinder) -> dict[str, Any]:
    given = row.get("messages") or row.get("conversations") or []
    messages = [_Message.of(message) for message in given]
    if [message.role for message in messages] != ["user", "assistant"]:
        raise UnusableRowError("its messages are not one user turn and one assistant turn")
    question, answer = messages
    names = row.get("images") or []
    if (count := len(_PLACEHOLDER.findall(question.content))) != len(names):
        raise UnusableRowError(f"{count} placeholders {IMAGE}, and {len(names)} images")
    if kind == "critic_sft" and count != 2:
        raise UnusableRowError(f"a critic compares two images, and it has {count}")
    parse: Callable[[str], Any] = parse_plan if kind == "planner_sft" else read_verdict
    parse(answer.content)
    turns = [ChatMessageRow(**message.model_dump()) for message in messages]
    return {"messages": turns, "images": [images.sha256(name) for name in names]}


def _read_rl(row: Mapping[str, Any], images: ImageFinder, home: Home) -> dict[str, Any]:
    read = _RlRow.model_validate(row)
    evaluation = Evaluation(**_Truth.model_validate(read.evaluation).model_dump())
    before, after = read.origin_image_path, images.sha256(read.edited_image_path)
    is_white = before is None or (isinstance(before, str) and WHITE in before)
    source = images.white(after, home.images.get) if is_white else images.sha256(before)
    return {
        "images": [source, after],
        "origin_prompt": read.origin_prompt,
        "rewritten_prompt": read.rewritten_prompt or "",
        "evaluation": evaluation,
    }


@dataclass(frozen=True)
class PromptColumns:
    """Where a file has what a prompt is made of; the defaults are those of `prompt40k.jsonl`."""

    text: str = "user_input"
    images: str = "user_input_image"
    category: str = "category"


def import_prompts(
    file: SourceFile, folder: Path, info: PackInfo, columns: PromptColumns, progress: Progress
) -> ImportResult:
    """Write a file's prompts as the pack `folder`, in place of an earlier import.

    Raises:
        FoundryError: the file cannot be read, has no usable prompt, or the folder is another pack.
    """
    if folder.exists() and not (folder / PROMPTS_FILE).is_file():
        raise FoundryError(f"{folder} is not an imported pack: choose another folder")
    with atomic_path(folder) as draft:
        (draft / IMAGES).mkdir(parents=True)
        finder = ImageFinder(file.images, lambda image: _write_image(draft / IMAGES, image))
        seen: set[tuple[str, ...]] = set()

        def read(_number: int, row: Mapping[str, Any]) -> FilePrompt:
            prompt = _read_prompt(row, columns, finder)
            key = (prompt.text, *prompt.images)
            if key in seen:
                raise UnusableRowError("an earlier row has the same prompt")
            seen.add(key)
            return prompt

        prompts, rejected = _read_all(file, read, progress)
        if not prompts:
            reason = next(iter(rejected.values()), "it is empty")
            raise FoundryError(f"{file.path} has no usable prompt; row 1: {reason}")
        lines = [prompt.model_dump_json(exclude_defaults=True) + "\n" for prompt in prompts]
        atomic_write(draft / PROMPTS_FILE, "".join(lines))
        atomic_write(draft / INFO, yaml.safe_dump(info.model_dump(), sort_keys=False))
    return ImportResult(len(prompts), rejected)


def _read_prompt(row: Mapping[str, Any], columns: PromptColumns, images: ImageFinder) -> FilePrompt:
    text = row.get(columns.text)
    if not isinstance(text, str) or not text.strip():
        raise UnusableRowError(f"no text in {columns.text}; it has {', '.join(map(str, row))}")
    if len(text) > _MAX_CHARACTERS:
        raise UnusableRowError(f"{len(text)} characters, more than {_MAX_CHARACTERS}")
    given = row.get(columns.images) or []
    names = given if isinstance(given, list) else [given]
    category = row.get(columns.category)
    return FilePrompt(
        text=text.strip(),
        category=str(category) if category else None,
        images=tuple(map(images.sha256, names)),
    )


def _write_image(folder: Path, image: EncodedImage) -> str:
    path = folder / f"{image.sha256}.png"
    if not path.exists():
        path.write_bytes(image.data)
    return image.sha256
