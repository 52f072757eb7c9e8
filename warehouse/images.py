"""Encoded images, identified by the sha256 of their bytes, and the store that keeps them."""

import base64
import hashlib
import io
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from PIL import Image

from schemas import BadImageError

from .storage import Storage

UPLOAD_FORMATS = ("PNG", "JPEG", "WEBP")
"""Pillow's names of the formats that users may send."""

_REMEDY = "`interleave run --select trajectories --force` generates it again"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAGIC = ((b"\xff\xd8", "image/jpeg"), (b"RIFF", "image/webp"), (b"GIF8", "image/gif"))


class ImageTooLargeError(BadImageError):
    """An image of more pixels than allowed; the message is its size, such as `640x480`."""


@dataclass(frozen=True)
class EncodedImage:
    """Encoded image bytes (PNG where we encode them); equality and hash are those of the bytes."""

    data: bytes

    @classmethod
    def of(cls, image: Image.Image) -> "EncodedImage":
        """As RGB PNG."""
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "PNG", compress_level=1)
        return cls(buffer.getvalue())

    @classmethod
    def white(cls, size: tuple[int, int]) -> "EncodedImage":
        """The white canvas (width, height) that stands for a missing image before an edit."""
        return cls.of(Image.new("RGB", size, "white"))

    @property
    def is_white(self) -> bool:
        return self.image.getextrema() == ((255, 255),) * 3

    @property
    def as_png(self) -> "EncodedImage":
        """Itself if it is PNG, else re-encoded; raises what `image` does."""
        return self if self.data.startswith(b"\x89PNG") else EncodedImage.of(self.image)

    def encoded(self, form: str, quality: int = 100) -> "EncodedImage":
        """As png, jpeg or webp; `quality`: of the last two, 0 to 100. Raises what `image` does."""
        if form == "png":
            return self.as_png
        buffer = io.BytesIO()
        self.image.save(buffer, form, quality=quality)
        return EncodedImage(buffer.getvalue())

    @cached_property
    def sha256(self) -> str:
        """Hash of the bytes, 64 hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()

    @property
    def mime(self) -> str:
        """Media type by the first bytes; unknown ones count as PNG."""
        return next((mime for magic, mime in _MAGIC if self.data.startswith(magic)), "image/png")

    @property
    def data_url(self) -> str:
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode('ascii')}"

    @cached_property
    def image(self) -> Image.Image:
        """The decoded RGB image; BadImageError: the bytes are none, or a truncated one."""
        try:
            return Image.open(io.BytesIO(self.data)).convert("RGB")
        except Exception as error:
            name = f"{self.sha256[:12]} ({len(self.data)} bytes)"
            raise BadImageError(f"image {name} cannot be decoded: {error}") from error


def check_upload(data: bytes, max_pixels: int, decode: bool = True) -> None:
    """Check the size of a user's image by its header, then `decode` it to find truncated ones.

    Raises:
        ImageTooLargeError: more than `max_pixels`.
        BadImageError: not an image in one of `UPLOAD_FORMATS`, or it cannot be decoded.
    """
    try:
        with Image.open(io.BytesIO(data), formats=UPLOAD_FORMATS) as image:
            width, height = image.size
            if decode and width * height <= max_pixels:
                image.load()
    except Image.DecompressionBombError:  # Pillow's own limit, also on the header
        raise ImageTooLargeError("far too many") from None
    except Exception as error:  # Pillow raises errors of all kinds
        raise BadImageError(f"not an image in {', '.join(UPLOAD_FORMATS)}: {error}") from error
    if width * height > max_pixels:
        raise ImageTooLargeError(f"{width}x{height}")


@dataclass(frozen=True)
class ImageStore:
    """Images below one root, as `ab/abcdef....png`, verified on reading."""

    storage: Storage

    def put(self, image: EncodedImage) -> str:
        """Store an image, unless these bytes are stored already; returns its sha256.

        Raises:
            BadImageError: it cannot be decoded; nothing is stored.
            StorageError: it cannot be written.
        """
        path = self.relative_path(image.sha256)
        if not self._has(path, image.data):
            _ = image.image
            self.storage.write(path, image.data, durable=False)
        return image.sha256

    def _has(self, path: str, data: bytes) -> bool:
        """Whether a file has these bytes: one that a power cut truncated, or that was damaged at
        its size, is written again."""
        with suppress(FileNotFoundError):
            return self.storage.size(path) == len(data) and self.storage.read(path) == data
        return False

    def get(self, sha256: str) -> EncodedImage:
        """The image of that hash, not decoded.

        Raises:
            BadImageError: it is missing, or its bytes have another hash.
            StorageError: it cannot be read.
        """
        path = self.relative_path(sha256)
        try:
            image = EncodedImage(self.storage.read(path))
        except FileNotFoundError as error:
            raise BadImageError(f"image {self.url(sha256)} is missing: {_REMEDY}") from error
        if image.sha256 != sha256:
            raise BadImageError(
                f"image {self.url(sha256)} is damaged ({len(image.data)} bytes of another "
                f"hash): delete it; {_REMEDY}"
            )
        return image

    def exists(self, sha256: str) -> bool:
        """Whether the image is stored; its bytes are not verified."""
        return self.storage.exists(self.relative_path(sha256))

    def url(self, sha256: str) -> str:
        """Absolute path in a local store, URL in a remote one."""
        return self.storage.url(self.relative_path(sha256))

    def relative_path(self, sha256: str) -> str:
        """Path below the store's root, the same in every home; BadImageError: not a sha256."""
        if not _SHA256.fullmatch(sha256):
            raise BadImageError(f"{sha256!r} is not the sha256 of an image")
        return f"{sha256[:2]}/{sha256}.png"
