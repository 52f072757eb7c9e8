"""Imports a file: its usable rows as a partition of `imports`, or as a prompt pack; and why the
others were rejected."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from inference.calls.progress import Progress
from schemas import FoundryError
from schemas.curation import IMPORTS, ImportedRow, ImportKind
from warehouse import EncodedImage, Home
from warehouse.atomic import atomic_path, atomic_write
from warehouse.storage import safe_name

from ..prompts.file_pack import IMAGES, INFO, PROMPTS_FILE, PackInfo
from ..prompts.pack import FilePrompt
from .source import ImageFinder, SourceFile, UnusableRowError
from .training_rows import RowReader

_MAX_CHARACTERS = 32_000


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
    _check_kind(home, name, kind)
    reader = RowReader(kind, home, ImageFinder(file.images, home.images.put))
    origin = {"source": file.label, "file_sha256": file.sha256, "licence": licence}

    def read(number: int, row: Mapping[str, Any]) -> ImportedRow:
        identity = {"row_id": f"{name}:{number}", "name": name, "number": number}
        return ImportedRow(kind=kind, **identity, **origin, **reader.read(row))

    rows, rejected = read_all(file, read, progress)
    if not rows:
        raise FoundryError(f"{file.path} has no usable row; {_first(rejected)}")
    before = home.lake.content_hash(IMPORTS, name)
    home.lake.write(IMPORTS, rows, name)
    return ImportResult(len(rows), rejected, before == home.lake.content_hash(IMPORTS, name))


def read_all(
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


def _check_kind(home: Home, name: str, kind: ImportKind) -> None:
    if home.lake.exists(IMPORTS, name):
        [other] = set(home.lake.read(IMPORTS, [name], ["kind"])["kind"].to_pylist())
        if other != kind:
            raise FoundryError(f"import {name} has rows of {other}: choose another --name")


def _first(rejected: dict[int, str]) -> str:
    return next((f"row {number}: {why}" for number, why in rejected.items()), "it is empty")


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
