"""Encoded images, identified by the sha256 of their bytes and decoded on demand."""

import base64
import hashlib
import io
from dataclasses import dataclass
from functools import cached_property

from PIL import Image

from schemas import BadImageError

UPLOAD_FORMATS = ("PNG", "JPEG", "WEBP")
"""Pillow's names of the formats that users may send."""

_MAGIC = ((b"\xff\xd8", "image/jpeg"), (b"RIFF", "image/webp"), (b"GIF8", "image/gif"))


class ImageTooLargeError(BadImageError):
    """An image of more pixels than allowed; the message is its size, such as `640x480`."""


@dataclass(frozen=True)
class EncodedImage:
    """Encoded image bytes (PNG where we encode them); equality and hash are those of the bytes."""

    data: bytes

    @classmethod
    def of(cls, image: Image.Image) -> "EncodedImage":
        """Encode an image as RGB PNG."""
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "PNG", compress_level=1)
        return cls(buffer.getvalue())

    @classmethod
    def white(cls, size: tuple[int, int]) -> "EncodedImage":
        """The white canvas (width, height) that stands for a missing image before an edit."""
        return cls.of(Image.new("RGB", size, "white"))

    @property
    def is_white(self) -> bool:
        """Whether every pixel is white, as in the canvas of `white`."""
        colours = self.image.getcolors(maxcolors=1)
        return colours is not None and colours[0][1] == (255, 255, 255)

    @property
    def as_png(self) -> "EncodedImage":
        """Itself if it is PNG, else re-encoded as PNG.

        Raises:
            BadImageError: the bytes are not an image.
        """
        return self if self.data.startswith(b"\x89PNG") else EncodedImage.of(self.image)

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
        """The image as a `data:` URL."""
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode('ascii')}"

    @cached_property
    def image(self) -> Image.Image:
        """The decoded RGB image.

        Raises:
            BadImageError: the bytes are not an image, or a truncated one.
        """
        try:
            return Image.open(io.BytesIO(self.data)).convert("RGB")
        except Exception as error:
            name = f"{self.sha256[:12]} ({len(self.data)} bytes)"
            raise BadImageError(f"image {name} cannot be decoded: {error}") from error


def check_upload(data: bytes, max_pixels: int, decode: bool = True) -> None:
    """Check an image that a user sent; the size is read from the header, before it is decoded.

    Args:
        decode: also decode it, to find truncated files.

    Raises:
        ImageTooLargeError: more than `max_pixels`.
        BadImageError: not an image in one of `UPLOAD_FORMATS`, or it cannot be decoded.
    """
    try:
        with Image.open(io.BytesIO(data), formats=UPLOAD_FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise ImageTooLargeError(f"{width}x{height}")
            if decode:
                image.load()
    except ImageTooLargeError:
        raise
    except Image.DecompressionBombError:  # Pillow's own limit, also on the header
        raise ImageTooLargeError("far too many") from None
    except Exception as error:  # Pillow raises errors of all kinds
        raise BadImageError(f"not an image in {', '.join(UPLOAD_FORMATS)}: {error}") from error
