"""Images of imported rows: found by the end of their path, checked, and stored."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from schemas import BadImageError
from warehouse import EncodedImage
from warehouse.images import check_upload

_MAX_PIXELS = 4096 * 4096
WHITE = "data/interleave/white.png"
"""The name by which the authors' code means: there is no image yet."""


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
