"""Images that come with a request; their size is checked before they are decoded."""

import asyncio
import base64
import binascii
import io
from collections.abc import Sequence

from PIL import Image

from warehouse import EncodedImage

from ..http.errors import APIError, bad_request
from .protocol import ImageRef
from .settings import RequestLimits

_FORMATS = ("PNG", "JPEG", "WEBP")
_DATA = "data:"
_HTTP = ("http://", "https://")


async def load_images(refs: Sequence[ImageRef], limits: RequestLimits) -> tuple[EncodedImage, ...]:
    """The images, decoded once as a check.

    Raises:
        APIError: one is too large, unavailable or not an image, or there are too many.
    """
    if len(refs) > limits.pictures:
        param = refs[limits.pictures].param
        message = f"at most {limits.pictures} images are allowed"
        raise bad_request(message, param, "too_many_images")
    return tuple([await _load(ref, limits) for ref in refs])


async def _load(ref: ImageRef, limits: RequestLimits) -> EncodedImage:
    data = await _read(ref, limits)
    if len(data) > limits.picture_bytes:
        raise bad_request(
            f"{ref.param} has {len(data)} bytes; at most {limits.picture_bytes} are allowed",
            ref.param,
            "image_file_too_large",
        )
    await asyncio.to_thread(_check, data, ref.param, limits.pixels)
    return EncodedImage(data)


async def _read(ref: ImageRef, limits: RequestLimits) -> bytes:
    url = ref.url
    if url[: len(_DATA)].lower() == _DATA:
        return await asyncio.to_thread(_decode_data_uri, url, ref.param)
    if not url.lower().startswith(_HTTP):
        raise bad_request(
            f"{ref.param}: send the image as a data URI (data:image/png;base64,...)",
            ref.param,
            "invalid_image_url",
        )
    if not limits.remote_pictures:
        raise bad_request(
            f"{ref.param}: this service does not fetch images from URLs; send it as a data URI "
            "(data:image/png;base64,...)",
            ref.param,
            "invalid_image_url",
        )
    from .image_fetch import fetch_image

    return await fetch_image(url, ref.param, limits.picture_bytes)


def _decode_data_uri(url: str, param: str) -> bytes:
    head, comma, data = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise bad_request(f"{param}: the data URI is not in base64", param, "invalid_base64_image")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(f"{param}: this is not base64", param, "invalid_base64_image") from None


def _check(data: bytes, param: str, max_pixels: int) -> None:
    if not data:
        raise bad_request(f"{param} is empty", param, "empty_image_file")
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            _check_size(image.size, param, max_pixels)  # from its header
            image.load()
    except APIError:
        raise
    except Image.DecompressionBombError:  # Pillow checks the header against a limit of its own
        raise _too_large(param, "far too many", max_pixels) from None
    except Exception:  # Pillow raises errors of many classes
        message = f"{param} is not a PNG, JPEG or WebP image"
        raise bad_request(message, param, "invalid_image") from None


def _check_size(size: tuple[int, int], param: str, max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise _too_large(param, f"{width}x{height}", max_pixels)


def _too_large(param: str, size: str, max_pixels: int) -> APIError:
    message = f"{param} has {size} pixels; at most {max_pixels} are allowed"
    return bad_request(message, param, "image_too_large")
