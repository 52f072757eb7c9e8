"""Masks of edits: white where to repaint. Models that paint none get the whole image, cut here."""

import io

from PIL import Image, ImageOps

from schemas import BadImageError
from warehouse import EncodedImage
from warehouse.images import UPLOAD_FORMATS


def to_white_mask(image: EncodedImage) -> EncodedImage:
    """A mask that is white where to repaint; OpenAI's are transparent there.

    Raises:
        BadImageError: it cannot be decoded.
    """
    try:
        with Image.open(io.BytesIO(image.data), formats=UPLOAD_FORMATS) as mask:
            if not mask.has_transparency_data:
                return image
            return EncodedImage.of(ImageOps.invert(mask.convert("RGBA").getchannel("A")))
    except Exception as error:  # Pillow raises errors of all kinds
        raise BadImageError("mask cannot be decoded") from error


def keep_outside(mask: EncodedImage, before: EncodedImage, after: EncodedImage) -> EncodedImage:
    """`after` where the mask is white, `before` elsewhere; all of one size."""
    return EncodedImage.of(Image.composite(after.image, before.image, mask.image.convert("L")))
