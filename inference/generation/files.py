"""Users' files: the pictures that they give, and the story that they get."""

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from schemas import BadImageError, FoundryError
from warehouse import EncodedImage
from warehouse.storage import storage_errors

from .generation_state import GenerationState
from .html_export import generation_html, generation_images, generation_markdown, generation_zip

FORMATS = (".html", ".md", ".zip")


def read_bytes(where: str | Path) -> bytes:
    """A user's file, by path or fsspec URL.

    Raises:
        StorageError: it cannot be read.
    """
    import fsspec

    with storage_errors("opened", where):
        if "://" not in str(where):
            return Path(where).read_bytes()
        with fsspec.open(str(where), "rb") as file:
            return bytes(file.read())


def version_of(where: str) -> str | None:
    """Another one when a file, by path or fsspec URL, was replaced; None: it cannot be seen."""
    import fsspec

    with suppress(OSError, ValueError, ImportError):
        storage, path = fsspec.core.url_to_fs(where)
        return str(storage.ukey(path))
    return None


def read_picture(where: str | Path) -> EncodedImage:
    """A picture that a user gives, by path or fsspec URL.

    Raises:
        FoundryError: it cannot be read, or is none.
    """
    picture = EncodedImage(read_bytes(where))
    try:
        _ = picture.image
    except BadImageError as error:
        raise FoundryError(f"{where} is no picture that can be read, as PNG or JPEG are") from error
    return picture


def output_file(wanted: Path | None) -> Path:
    """Where a story will go, found out before it costs anything.

    Args:
        wanted: None: `story.html` in the working directory, numbered if there is one already.

    Raises:
        FoundryError: it is of no format that we write, or cannot be written there.
    """
    path = (wanted or _unused(Path("story.html"))).absolute()
    if path.suffix.lower() not in FORMATS:
        raise FoundryError(f"{path.name} is of no known format: end it in {' or '.join(FORMATS)}")
    if path.is_dir():
        raise FoundryError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise FoundryError(f"there is no folder {path.parent}: make it, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FoundryError(f"{path} cannot be written: no permission")
    return path


def write_generation(story: GenerationState, path: Path) -> None:
    """Write a story in the format that the name says; pictures of Markdown get a folder beside it.

    Raises:
        FoundryError: it cannot be written.
    """
    try:
        match path.suffix.lower():
            case ".zip":
                path.write_bytes(generation_zip(story))
            case ".md":
                _write_markdown(story, path)
            case _:
                path.write_text(generation_html(story), "utf-8")
    except OSError as error:
        raise FoundryError(f"{path} cannot be written: {error.strerror or error}") from error


def _write_markdown(story: GenerationState, path: Path) -> None:
    folder = path.with_name(f"{path.stem}-pictures")
    folder.mkdir(exist_ok=True)
    for name, picture in generation_images(story).items():
        (folder / name).write_bytes(picture.data)
    path.write_text(generation_markdown(story, folder.name), "utf-8")


def _unused(path: Path) -> Path:
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return path if not path.exists() else next(name for name in names if not name.exists())
