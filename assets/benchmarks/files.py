"""Official files of benchmarks: rows, pictures, folders of answers. What is wrong is one line."""

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow.parquet as pq
from pydantic import BaseModel, TypeAdapter, ValidationError

from schemas.errors import FoundryError, first_problem
from warehouse import EncodedImage
from warehouse.atomic import atomic_write

Content = TypeVar("Content")
Row = TypeVar("Row", bound=BaseModel)
_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}


def find_file(source: Path, folders: Sequence[str], names: Sequence[str], benchmark: str) -> Path:
    """The first of these files in one of these folders; FoundryError: there is none."""
    paths = (source / folder / name for name in names for folder in folders)
    if found := next((path for path in paths if path.is_file()), None):
        return found
    raise FoundryError(
        f"{source}: has no {' or '.join(names)} of {benchmark}; "
        "give the folder of the official repository"
    )


def read_rows(path: Path, form: type[Row], columns: Collection[str] = ()) -> list[Row]:
    """Rows of a Parquet, JSON-lines or JSON file.

    Args:
        columns: of a Parquet file, those that are read where it has them.

    Raises:
        FoundryError: it cannot be read, or a row has another form.
    """
    try:
        if path.suffix == ".parquet":
            rows = pq.ParquetFile(path).read(columns=list(columns)).to_pylist()
        elif path.suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8").split("\n")
            rows = [json.loads(line) for line in lines if line.strip()]
        else:
            rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FoundryError(f"{path}: cannot be read ({error}); copy it again") from error
    if not isinstance(rows, list):
        raise FoundryError(f"{path}: is no list of items; copy the official file again")
    return parse_rows(path, rows, form)


def parse_rows(path: Path, rows: Iterable[object], form: type[Row]) -> list[Row]:
    """Rows in their form; FoundryError: the first that is not, by its number from 1."""
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(form.model_validate(row))
        except ValidationError as error:
            problem = first_problem(error, root="row")
            raise FoundryError(
                f"{path}: item {number}: {problem}; copy the official file again"
            ) from error
    return found


def read_answers(path: Path, form: type[Content]) -> Content:
    """A system's file of answers; FoundryError: it cannot be read, or has another form."""
    try:
        return TypeAdapter(form).validate_json(path.read_bytes())
    except OSError as error:
        raise FoundryError(f"{path}: cannot be read ({error.strerror}); copy it again") from error
    except ValidationError as error:
        problem = first_problem(error, root="file")
        raise FoundryError(f"{path}: answer {problem}; write it again") from error


def check_pictures(path: Path, pictures: Iterable[tuple[str, str, Path]], hint: str) -> None:
    """Raises FoundryError where one of (item, name, file) is missing.

    Args:
        hint: what to do.
    """
    missing = [(item_id, name) for item_id, name, file in pictures if not file.is_file()]
    if missing:
        item_id, name = missing[0]
        more = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
        raise FoundryError(f"{path}: item {item_id}: its picture {name} is missing{more}; {hint}")


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


def write_image(folder: Path, stem: str, image: EncodedImage) -> str:
    """Write a picture as it is encoded; its name."""
    name = f"{stem}.{_EXTENSIONS.get(image.mime, 'png')}"
    atomic_write(folder / name, image.data)
    return name


def write_json(path: Path, content: object) -> None:
    atomic_write(path, json.dumps(content, ensure_ascii=False, indent=1))


def system_folder(root: Path, system: str, suffix: str = "") -> Path:
    """The folder of a system's answers, created; FoundryError: its name is no folder's."""
    if not system or Path(system).name != system:
        raise FoundryError(f"system name {system!r}: must be usable as a folder's name")
    folder = root / f"{system}{suffix}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def answer_files(source: Path, pattern: str) -> list[Path]:
    """Files of answers below a folder, sorted; FoundryError: it is none."""
    if not source.is_dir():
        raise FoundryError(f"{source}: is not a folder; give a system's answers")
    return sorted(source.glob(pattern))
