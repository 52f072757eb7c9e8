"""Pictures that come with a request: how large they are is read before they are decoded."""

import asyncio
import base64
import binascii
import io
from collections.abc import Sequence

from PIL import Image

from warehouse import EncodedImage

from ..http.errors import APIError, bad_request
from .content import ImageRef
from .settings import RequestLimits

_FORMATS = ("PNG", "JPEG", "WEBP")
_DATA = "data:"
_HTTP = ("http://", "https://")


async def load_images(
    sights: Sequence[ImageRef], limits: RequestLimits
) -> tuple[EncodedImage, ...]:
    """The pictures, decoded once to see that they can be.

    Raises:
        Refusal: one is too large, cannot be had or is none, or there are too many.
    """
    if len(sights) > limits.pictures:
        param = sights[limits.pictures].param
        raise bad_request(f"at most {limits.pictures} pictures are taken", param, "too_many_images")
    return tuple([await _seen(sight, limits) for sight in sights])


async def _seen(sight: ImageRef, limits: RequestLimits) -> EncodedImage:
    data = await _bytes(sight, limits)
    if len(data) > limits.picture_bytes:
        raise bad_request(
            f"{sight.param} has {len(data)} bytes; at most {limits.picture_bytes} are taken",
            sight.param,
            "image_file_too_large",
        )
    await asyncio.to_thread(_check, data, sight.param, limits.pixels)
    return EncodedImage(data)


async def _bytes(sight: ImageRef, limits: RequestLimits) -> bytes:
    url = sight.url
    if url[: len(_DATA)].lower() == _DATA:
        return await asyncio.to_thread(_of_data_uri, url, sight.param)
    if not url.lower().startswith(_HTTP):
        raise bad_request(
            f"{sight.param}: send the picture as a data URI (data:image/png;base64,...)",
            sight.param,
            "invalid_image_url",
        )
    if not limits.remote_pictures:
        raise bad_request(
            f"{sight.param}: this service fetches no pictures from elsewhere; send it as a data "
            "URI (data:image/png;base64,...)",
            sight.param,
            "invalid_image_url",
        )
    from .image_fetch import fetch_image

    return await fetch_image(url, sight.param, limits.picture_bytes)


def _of_data_uri(url: str, param: str) -> bytes:
    head, comma, data = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise bad_request(f"{param}: the data URI is not in base64", param, "invalid_base64_image")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(f"{param}: this is not base64", param, "invalid_base64_image") from None


def _check(data: bytes, param: str, most_pixels: int) -> None:
    if not data:
        raise bad_request(f"{param} is empty", param, "empty_image_file")
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
            _check_size(picture.size, param, most_pixels)  # from its header
            picture.load()
    except APIError:
        raise
    except Image.DecompressionBombError:  # Pillow looks at the header, too, with a limit of its own
        raise _too_large(param, "far too many", most_pixels) from None
    except Exception:  # Pillow raises errors of all kinds
        raise bad_request(
            f"{param} is no PNG, JPEG or WebP picture", param, "invalid_image"
        ) from None


def _check_size(size: tuple[int, int], param: str, most_pixels: int) -> None:
    width, height = size
    if width * height > most_pixels:
        raise _too_large(param, f"{width}x{height}", most_pixels)


def _too_large(param: str, size: str, most_pixels: int) -> APIError:
    message = f"{param} has {size} pixels; at most {most_pixels} are taken"
    return bad_request(message, param, "image_too_large")
