"""OpenAI's images API: its requests as specs for a generator; images as it answers with them."""

import asyncio
import base64
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Literal, Self

import orjson
from fastapi import Request
from pydantic import Field, model_validator

from schemas import BadImageError
from warehouse import EncodedImage

from ..backends.diffusers.pipeline_runner import GenerationSpec, white_canvas
from ..backends.diffusers.registry import SamplingParams
from ..http.body_reader import BodyReader, check_image
from ..http.errors import APIError, RequestModel, bad_request, not_found, validate
from .models import DrawnImage, ImageLimits, ServableImageModel, to_white_mask
from .reference import EditRequest

LINKS = "/v1/images/files/"

_MAX_IMAGES = 16
_MAX_FIELDS = 64
_BODIES_AT_ONCE = 16  # of the largest size
_READ_SECONDS = 120
_IMAGE_FIELD = re.compile(r"image(\[\d*\])?")
_SEED_BITS = 31  # accepted by every generator
_SIZE = r"^(auto|[1-9]\d{0,4}x[1-9]\d{0,4})$"
_LINK_SECONDS = 3600.0  # as OpenAI's
_LINKED_BYTES = 256 * 2**20

Draw = Callable[[GenerationSpec], Awaitable[DrawnImage]]


class ImageRequest(RequestModel, strict=False):
    """The fields of both endpoints: OpenAI's, and those that open servers add."""

    prompt: str = Field(min_length=1, max_length=32_000)
    model: str | None = None
    n: int | None = Field(None, ge=1, le=_MAX_IMAGES)
    size: str | None = Field(None, pattern=_SIZE)
    response_format: Literal["b64_json", "url"] | None = None
    output_format: Literal["png", "jpeg", "webp"] | None = None
    output_compression: int | None = Field(None, ge=0, le=100)
    stream: bool | None = None
    partial_images: int | None = Field(None, ge=0, le=3)

    seed: int | None = Field(None, ge=0, le=2**53)
    num_inference_steps: int | None = Field(None, ge=1)
    guidance_scale: float | None = Field(None, ge=0, allow_inf_nan=False)
    negative_prompt: str | None = Field(None, max_length=32_000)

    # Values that change nothing: those of hosted models are refused.
    background: Literal["auto", "opaque"] | None = None
    quality: Literal["auto", "standard"] | None = None
    style: Literal["vivid"] | None = None
    moderation: Literal["auto", "low"] | None = None
    input_fidelity: Literal["low"] | None = None
    user: str | None = None
    safety_identifier: str | None = None

    @model_validator(mode="after")
    def _check_stream(self) -> Self:
        if not self.stream and self.partial_images:
            raise ValueError("partial_images: only a stream has them; send stream: true as well")
        if self.stream and (self.n or 1) > 1:
            raise ValueError("n: a stream has one image; send several requests")
        if self.stream and self.response_format == "url":
            raise ValueError("response_format: a stream carries its images; leave url out")
        return self

    @model_validator(mode="after")
    def _check_compression(self) -> Self:
        compressed = self.output_compression is not None and self.output_compression < 100
        if compressed and self.output_format not in ("jpeg", "webp"):
            raise ValueError("output_compression: set output_format to jpeg or webp as well")
        return self

    def sampling_params(self) -> SamplingParams:
        """The parameters that the request sets."""
        return SamplingParams(
            steps=self.num_inference_steps,
            guidance=self.guidance_scale,
            negative_prompt=self.negative_prompt,
            size=None if self.size == "auto" else self.size,
        )


@dataclass(frozen=True)
class ImageJob:
    """A valid request: a spec per image, with rising seeds."""

    request: ImageRequest
    specs: list[GenerationSpec]
    is_edit: bool


class ImageRequestReader:
    """Reads and validates the requests for one model.

    Raises:
        APIError: a request cannot be read, is invalid, or exceeds a limit.
        ClientDisconnect: the client disconnected.
    """

    def __init__(self, model: ServableImageModel, limits: ImageLimits) -> None:
        self._model, self._limits = model, limits
        self._bodies = BodyReader(_BODIES_AT_ONCE * limits.bytes, _READ_SECONDS)

    async def read_generation(self, request: Request) -> ImageJob:
        image_request, _ = await self._bodies.read_json(request, ImageRequest)
        return ImageJob(image_request, self._specs(image_request), is_edit=False)

    async def read_edit(self, request: Request) -> ImageJob:
        """From a form with one or several files `image` or `image[]`, and perhaps a `mask`."""
        fields, files = await self._bodies.read_form(request, _MAX_IMAGES + 1, _MAX_FIELDS)
        images, mask = [], None
        for name, _, data in files:
            check_image(data, name, self._limits.pixels, decode=False)  # the replica decodes it
            image = EncodedImage(data)
            if name == "mask":
                mask = await self._mask(image)
            elif _IMAGE_FIELD.fullmatch(name):
                images.append(image)
            else:
                message = f"unknown file {name}; known files: image, image[], mask"
                raise bad_request(message, name)
        if not images:
            raise bad_request("send the image to edit, or several, as files", "image")
        if mask and len(images) > 1:  # OpenAI repaints the first, models here edit the last
            raise bad_request("a mask belongs to one image; send no other", "mask")
        image_request = validate(fields, ImageRequest)
        specs = self._specs(image_request, tuple(images), mask)
        return ImageJob(image_request, specs, is_edit=True)

    async def read_reference(self, request: Request) -> tuple[EditRequest, ImageJob]:
        """A request of the reference's service; the model draws with its own settings."""
        edit, _ = await self._bodies.read_json(request, EditRequest)
        images = []
        if image := await asyncio.to_thread(edit.decoded_image):
            check_image(image.data, "image", self._limits.pixels, decode=False)
            images.append(image)
        asked = validate({"prompt": edit.prompt, "seed": edit.seed}, ImageRequest)
        return edit, ImageJob(asked, self._specs(asked, tuple(images)), is_edit=bool(images))

    async def _mask(self, image: EncodedImage) -> EncodedImage:
        try:
            mask = await asyncio.to_thread(to_white_mask, image)
            await asyncio.to_thread(lambda: mask.image)  # decoded here, off the event loop
            return mask
        except BadImageError as error:
            raise bad_request(str(error), "mask", "invalid_image") from None

    def _specs(
        self,
        request: ImageRequest,
        images: tuple[EncodedImage, ...] = (),
        mask: EncodedImage | None = None,
    ) -> list[GenerationSpec]:
        limits, params = self._limits, request.sampling_params()
        if (request.num_inference_steps or 0) > limits.steps:
            raise bad_request(f"at most {limits.steps} steps are taken", "num_inference_steps")
        width, height = params.pixels or (0, 0)
        if width * height > limits.pixels:
            raise bad_request(f"{request.size} has more than {limits.pixels} pixels", "size")
        if mask and params.pixels not in (None, mask.image.size):
            message = "an edit with a mask is as large as the mask; leave the size out"
            raise bad_request(message, "size")
        check_model(self._model, request.model or self._model.name)
        seed = secrets.randbits(_SEED_BITS) if request.seed is None else request.seed
        params = params.over(self._model.params)
        if not images and self._model.needs_canvas:
            images = (white_canvas(params),)
        return [
            GenerationSpec(request.prompt, seed + number, params, images, mask)
            for number in range(request.n or 1)
        ]


def check_model(model: ServableImageModel, name: str) -> None:
    """Raise APIError (404) if a request names another model than the served one."""
    if name != model.name:
        raise not_found(f"no model {name} here, only {model.name}", "model", "model_not_found")


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
    """Encodes the images of a job as its request asks; `base_url`: as the client knows it."""

    job: ImageJob
    links: LinkedImages
    base_url: str

    @property
    def output_format(self) -> str:
        return self.job.request.output_format or "png"

    async def response(self, images: Sequence[DrawnImage]) -> dict[str, Any]:
        """Images in the order of the request, each with the seed that reproduces it."""
        data = [
            await self._entry(image) | {"seed": spec.seed}
            for spec, image in zip(self.job.specs, images, strict=True)
        ]
        return {"created": int(time.time()), "data": data, "output_format": self.output_format}

    async def events(self, draw: Draw) -> AsyncIterator[bytes]:
        """Those of one image. A partial image is drawn in fewer steps, from the same seed."""
        [spec] = self.job.specs
        steps = preview_steps(spec.params.steps, self.job.request.partial_images or 0)
        for index, number in enumerate(steps):
            params = spec.params.model_copy(update={"steps": number})
            preview = await self._base64(await draw(replace(spec, params=params)))
            yield self._event("partial_image", b64_json=preview, partial_image_index=index)
        image = await self._base64(await draw(spec))
        yield self._event("completed", b64_json=image, seed=spec.seed, usage=None)

    def _event(self, name: str, **fields: Any) -> bytes:
        kind = "image_edit" if self.job.is_edit else "image_generation"
        shared = {
            "created_at": int(time.time()),
            "size": self.job.specs[0].params.size or "auto",
            "quality": "auto",
            "background": "opaque",
            "output_format": self.output_format,
        }
        return _encode_event(f"{kind}.{name}", shared | fields)

    async def _entry(self, image: DrawnImage) -> dict[str, str]:
        if self.job.request.response_format != "url":
            return {"b64_json": await self._base64(image)}
        encoded = await self._encoded(image)
        return {"url": self.base_url + self.links.add(encoded.data, encoded.mime)}

    async def _base64(self, image: DrawnImage) -> str:
        return base64.b64encode((await self._encoded(image)).data).decode()

    async def _encoded(self, image: DrawnImage) -> EncodedImage:
        compression = self.job.request.output_compression
        quality = 100 if compression is None else compression
        drawn = EncodedImage(image.data)
        return await asyncio.to_thread(drawn.encoded, self.output_format, quality)


def preview_steps(steps: int | None, count: int) -> list[int]:
    """Denoising steps of so many partial images: evenly spaced up to half of an image's own."""
    if not steps:
        return []
    spaced = {steps * number // (2 * count) for number in range(1, count + 1)}
    return sorted(number for number in spaced if 0 < number < steps)


def error_event(error: APIError) -> bytes:
    """The last event of a stream that failed."""
    return _encode_event("error", {"error": error.error})


def _encode_event(name: str, fields: dict[str, Any]) -> bytes:
    content = orjson.dumps({"type": name} | fields)
    return b"event: %s\ndata: %s\n\n" % (name.encode(), content)
