"""A file of prompts as a pack: `prompt40k.jsonl` of the authors, or one of one's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from inference.calls.progress import Progress
from schemas import FoundryError
from warehouse import EncodedImage
from warehouse.atomic import atomic_path, atomic_write

from ..prompts.file_pack import IMAGES, INFO, PROMPTS_FILE, PackInfo
from ..prompts.pack import FilePrompt
from .importer import ImportResult, read_all
from .source import ImageFinder, SourceFile, UnusableRowError

_MAX_CHARACTERS = 32_000


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
            prompt = _read(row, columns, finder)
            key = (prompt.text, *prompt.images)
            if key in seen:
                raise UnusableRowError("an earlier row has the same prompt")
            seen.add(key)
            return prompt

        prompts, rejected = read_all(file, read, progress)
        if not prompts:
            reason = next(iter(rejected.values()), "it is empty")
            raise FoundryError(f"{file.path} has no usable prompt; row 1: {reason}")
        lines = [prompt.model_dump_json(exclude_defaults=True) + "\n" for prompt in prompts]
        atomic_write(draft / PROMPTS_FILE, "".join(lines))
        atomic_write(draft / INFO, yaml.safe_dump(info.model_dump(), sort_keys=False))
    return ImportResult(len(prompts), rejected)


def _read(row: Mapping[str, Any], columns: PromptColumns, images: ImageFinder) -> FilePrompt:
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
