"""Images that come with a request; their size is checked before they are decoded."""

import asyncio
import base64
import binascii
from collections.abc import Sequence

from warehouse import EncodedImage

from ..http.body_reader import check_image
from ..http.errors import bad_request
from .protocol import ImageRef
from .settings import RequestLimits

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
    if not data:
        raise bad_request(f"{ref.param} is empty", ref.param, "empty_image_file")
    await asyncio.to_thread(check_image, data, ref.param, limits.pixels)
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
