"""A picture: encoded bytes named by their sha256, decoded only when somebody looks."""

import base64
import hashlib
import io
from dataclasses import dataclass
from functools import cached_property

from PIL import Image

from schemas import BadImageError

_MAGIC = ((b"\xff\xd8", "image/jpeg"), (b"RIFF", "image/webp"), (b"GIF8", "image/gif"))


@dataclass(frozen=True)
class EncodedImage:
    """Encoded image bytes (PNG where we make them); equality and hash are those of the bytes."""

    data: bytes

    @classmethod
    def of(cls, image: Image.Image) -> "EncodedImage":
        """Encode an image as RGB PNG."""
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, "PNG", compress_level=1)
        return cls(buffer.getvalue())

    @classmethod
    def white(cls, size: tuple[int, int]) -> "EncodedImage":
        """The canvas (width, height) that stands for "nothing yet" where two pictures are due."""
        return cls.of(Image.new("RGB", size, "white"))

    @property
    def as_png(self) -> "EncodedImage":
        """Itself where it is PNG, else encoded again.

        Raises:
            BadImageError: the bytes are no picture.
        """
        return self if self.data.startswith(b"\x89PNG") else EncodedImage.of(self.image)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def mime(self) -> str:
        """The bytes' own word for their format; what says nothing is taken for PNG."""
        return next((mime for magic, mime in _MAGIC if self.data.startswith(magic)), "image/png")

    @property
    def data_url(self) -> str:
        """An address that is the picture itself."""
        return f"data:{self.mime};base64,{base64.b64encode(self.data).decode('ascii')}"

    @cached_property
    def image(self) -> Image.Image:
        """The decoded RGB image.

        Raises:
            BadImageError: the bytes are no picture, or a truncated one.
        """
        try:
            return Image.open(io.BytesIO(self.data)).convert("RGB")
        except Exception as error:
            name = f"{self.sha256[:12]} ({len(self.data)} bytes)"
            raise BadImageError(f"picture {name} cannot be decoded: {error}") from error
