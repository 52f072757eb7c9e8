"""Files to import, here or in a data set of the Hub, and the images that their rows name."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from schemas import BadImageError, FoundryError
from warehouse import EncodedImage, Home
from warehouse.images import check_upload
from warehouse.verify import file_sha256

from ..core.row_files import Row, read_rows
from ..hub.repository import Repository

_HUB = "datasets/"
_MAX_PIXELS = 4096 * 4096
WHITE = "data/interleave/white.png"
"""The name by which the authors' code means: there is no image yet."""


@dataclass(frozen=True)
class SourceFile:
    """A file to import.

    Args:
        label: what tables call it: its name, or its repository with the commit.
        images: where relative paths of images begin.
    """

    path: Path
    label: str
    images: Path

    @property
    def sha256(self) -> str:
        return file_sha256(self.path)

    def rows(self) -> Iterator[Row]:
        """Its rows, unchecked.

        Raises:
            FoundryError: it cannot be read, or is in none of the formats.
        """
        with self.path.open("rb") as file:
            yield from read_rows(str(self.path), file)


def open_source(home: Home, reference: str, images: Path | None) -> SourceFile:
    """A local file, or `datasets/OWNER/NAME[@REVISION]/FILE` of the Hub, which is downloaded.

    Raises:
        FoundryError: there is no such file, or it cannot be downloaded.
    """
    path = Path(reference).expanduser()
    if path.is_file():
        return SourceFile(path, path.name, images or path.parent)
    if reference.startswith(_HUB) and reference.count("/") >= 3:
        return _from_hub(home, reference, images)
    raise FoundryError(f"no file {reference}; a file of the Hub is datasets/OWNER/NAME/FILE")


def _from_hub(home: Home, reference: str, images: Path | None) -> SourceFile:
    _, owner, rest, file = reference.split("/", 3)
    name, _, revision = rest.partition("@")
    repository = Repository.named(f"{_HUB}{owner}/{name}")
    commit = repository.commit(revision or "main")
    folder = home.local / "imports" / f"datasets--{owner}--{name}"
    repository.download(commit, folder)
    path = folder / file
    if not path.is_file():
        raise FoundryError(f"{repository} at {commit[:12]} has no file {file}")
    return SourceFile(path, f"{repository}@{commit[:12]}/{file}", images or folder)


class UnusableRowError(Exception):
    """Why a row is rejected."""


@dataclass(frozen=True)
class ImageFinder:
    """Reads images below a folder.

    Paths are those of the machine that wrote the file: the longest end of one that exists here
    counts. An image may also be given as bytes, as in Parquet files of `datasets`.

    Args:
        store: gets an image, returns its sha256.
    """

    folder: Path
    store: Callable[[EncodedImage], str]
    _known: dict[str, str] = field(default_factory=dict)

    def sha256(self, image: Any) -> str:
        """The stored image; UnusableRowError: it is missing, too large, or none."""
        if isinstance(image, dict):
            image = image.get("bytes") or image.get("path")
        if isinstance(image, bytes):
            return self._stored(image, "an image")
        if not isinstance(image, str) or not image:
            raise UnusableRowError(f"{image!r:.60} is no path of an image")
        if image not in self._known:
            self._known[image] = self._stored(self._find(image).read_bytes(), image)
        return self._known[image]

    def white(self, like: str, read: Callable[[str], EncodedImage]) -> str:
        """The white canvas in the size of another image."""
        key = "white {}x{}".format(*(size := read(like).image.size))
        if key not in self._known:
            self._known[key] = self.store(EncodedImage.white(size))
        return self._known[key]

    def _find(self, name: str) -> Path:
        parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..", ".")]
        for start in range(len(parts)):
            path = self.folder.joinpath(*parts[start:])
            if path.is_file():
                return path
        raise UnusableRowError(f"image {name} is not below {self.folder}")

    def _stored(self, content: bytes, name: str) -> str:
        try:
            check_upload(content, _MAX_PIXELS)
            return self.store(EncodedImage(content).as_png)
        except BadImageError as error:
            raise UnusableRowError(f"{name}: {error}") from error
