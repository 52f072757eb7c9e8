"""Images as OpenAI's API answers with them: a JSON object, links, or the events of a stream."""

import asyncio
import base64
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

import orjson

from warehouse import EncodedImage

from ..backends.diffusers.pipeline_runner import GenerationSpec
from ..http.errors import APIError, not_found
from .models import DrawnImage
from .requests import ImageJob, ImageRequest

LINKS = "/v1/images/files/"
_LINK_SECONDS = 3600.0  # as OpenAI's
_LINKED_BYTES = 256 * 2**20

Draw = Callable[[GenerationSpec], Awaitable[DrawnImage]]


class LinkedImages:
    """Images in memory, each for an hour, and the oldest ones less where memory is short.

    An address cannot be guessed, and needs no key: it goes where an <img> shows it.
    """

    def __init__(self, seconds: float = _LINK_SECONDS, max_bytes: int = _LINKED_BYTES) -> None:
        self._seconds, self._max_bytes = seconds, max_bytes
        # Name -> when it expires, media type, content; the oldest first.
        self._images: OrderedDict[str, tuple[float, str, bytes]] = OrderedDict()

    def add(self, content: bytes, mime: str) -> str:
        """The path of an image."""
        name = f"{secrets.token_urlsafe(24)}.{mime.removeprefix('image/')}"
        self._images[name] = monotonic() + self._seconds, mime, content
        self._remove_old()
        return LINKS + name

    def get(self, name: str) -> tuple[str, bytes]:
        """Media type and content; APIError (404): there is none, or not any more."""
        self._remove_old()
        if name not in self._images:
            raise not_found(f"no image {name} here, or not any more", "name")
        _, mime, content = self._images[name]
        return mime, content

    def _remove_old(self) -> None:
        total = sum(len(content) for *_, content in self._images.values())
        while self._images:
            expires, _, content = next(iter(self._images.values()))
            if expires > monotonic() and (total <= self._max_bytes or len(self._images) == 1):
                return
            self._images.popitem(last=False)
            total -= len(content)


@dataclass(frozen=True)
class ImageEncoder:
    """Encodes the images of a request as it asks.

    Args:
        base_url: of the server, as the client knows it.
    """

    request: ImageRequest
    links: LinkedImages
    base_url: str

    @property
    def output_format(self) -> str:
        return self.request.output_format or "png"

    async def response(
        self, specs: Sequence[GenerationSpec], images: Sequence[DrawnImage]
    ) -> dict[str, Any]:
        """Images in the order of the request, each with the seed that reproduces it."""
        data = [
            await self._entry(image) | {"seed": spec.seed}
            for spec, image in zip(specs, images, strict=True)
        ]
        return {"created": int(time.time()), "data": data, "output_format": self.output_format}

    async def base64(self, image: DrawnImage) -> str:
        return base64.b64encode((await self._encoded(image)).data).decode()

    async def _entry(self, image: DrawnImage) -> dict[str, str]:
        if self.request.response_format != "url":
            return {"b64_json": await self.base64(image)}
        encoded = await self._encoded(image)
        return {"url": self.base_url + self.links.add(encoded.data, encoded.mime)}

    async def _encoded(self, image: DrawnImage) -> EncodedImage:
        compression = self.request.output_compression
        quality = 100 if compression is None else compression
        drawn = EncodedImage(image.data)
        return await asyncio.to_thread(drawn.encoded, self.output_format, quality)


def preview_steps(steps: int | None, count: int) -> list[int]:
    """Denoising steps of so many partial images: evenly spaced up to half of an image's own."""
    if not steps:
        return []
    spaced = {steps * number // (2 * count) for number in range(1, count + 1)}
    return sorted(number for number in spaced if 0 < number < steps)


async def stream_events(job: ImageJob, encoder: ImageEncoder, draw: Draw) -> AsyncIterator[bytes]:
    """The events of one image. A partial image is drawn in fewer steps, from the same seed."""
    [spec], kind = job.specs, "image_edit" if job.is_edit else "image_generation"
    steps = preview_steps(spec.params.steps, job.request.partial_images or 0)
    for index, number in enumerate(steps):
        params = spec.params.model_copy(update={"steps": number})
        preview = await encoder.base64(await draw(replace(spec, params=params)))
        fields = {"b64_json": preview, "partial_image_index": index}
        yield _event(f"{kind}.partial_image", spec, encoder, fields)
    image = await encoder.base64(await draw(spec))
    fields = {"b64_json": image, "seed": spec.seed, "usage": None}
    yield _event(f"{kind}.completed", spec, encoder, fields)


def error_event(error: APIError) -> bytes:
    """The last event of a stream that failed."""
    return _encode("error", {"type": "error", "error": error.error})


def _event(name: str, spec: GenerationSpec, encoder: ImageEncoder, fields: dict[str, Any]) -> bytes:
    shared = {
        "type": name,
        "created_at": int(time.time()),
        "size": spec.params.size or "auto",
        "quality": "auto",
        "background": "opaque",
        "output_format": encoder.output_format,
    }
    return _encode(name, shared | fields)


def _encode(name: str, content: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(content))
