"""Users' files: images and requests that are read, and the sequence that is written."""

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from schemas import BadImageError, FoundryError
from warehouse import EncodedImage
from warehouse.storage import storage_errors

from .html_export import generation_html, generation_images, generation_markdown, generation_zip
from .trajectory_view import TrajectoryView

FORMATS = (".html", ".md", ".zip")


def read_bytes(location: str | Path) -> bytes:
    """The content of a file, by path or fsspec URL; StorageError if it cannot be read."""
    import fsspec

    with storage_errors("opened", location):
        if "://" not in str(location):
            return Path(location).read_bytes()
        with fsspec.open(str(location), "rb") as file:
            return bytes(file.read())


def file_version(location: str) -> str | None:
    """A string that changes when the file (path or fsspec URL) is replaced; None: not available."""
    import fsspec

    with suppress(OSError, ValueError, ImportError):
        storage, path = fsspec.core.url_to_fs(location)
        return str(storage.ukey(path))
    return None


def read_image(location: str | Path) -> EncodedImage:
    """An image file, by path or fsspec URL; FoundryError if there is no readable one."""
    image = EncodedImage(read_bytes(location))
    try:
        _ = image.image
    except BadImageError as error:
        raise FoundryError(f"{location} is not a readable image such as PNG or JPEG") from error
    return image


def output_file(path: Path | None) -> Path:
    """The absolute path of an output file; None: a new `story.html` in the working directory.

    Raises:
        FoundryError: its format is unknown, or it cannot be written.
    """
    path = (path or _unused(Path("story.html"))).absolute()
    if path.suffix.lower() not in FORMATS:
        raise FoundryError(f"{path.name} is of no known format: end it in {' or '.join(FORMATS)}")
    if path.is_dir():
        raise FoundryError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise FoundryError(f"there is no folder {path.parent}: create it, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise FoundryError(f"{path} cannot be written: no permission")
    return path


def write_generation(generation: TrajectoryView, path: Path) -> None:
    """Write a generation in the format of the file's suffix; FoundryError if it cannot be written.

    Markdown gets a folder with the images beside it, `<name>-pictures`.
    """
    try:
        match path.suffix.lower():
            case ".zip":
                path.write_bytes(generation_zip(generation))
            case ".md":
                folder = path.with_name(f"{path.stem}-pictures")
                folder.mkdir(exist_ok=True)
                for name, image in generation_images(generation).items():
                    (folder / name).write_bytes(image.data)
                path.write_text(generation_markdown(generation, folder.name), "utf-8")
            case _:
                path.write_text(generation_html(generation), "utf-8")
    except OSError as error:
        raise FoundryError(f"{path} cannot be written: {error.strerror or error}") from error


def _unused(path: Path) -> Path:
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return path if not path.exists() else next(name for name in names if not name.exists())
