"""What clients of OpenAI's images API send, as drawings."""

import asyncio
import io
import re
import secrets
from dataclasses import dataclass
from typing import Literal

from fastapi import Request
from PIL import Image, ImageOps
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from warehouse import EncodedImage

from ..backends.diffusers.generation_spec import GenerationSpec
from ..backends.diffusers.sampling_params import SamplingParams
from ..http.errors import APIError, bad_request
from .settings import ImageLimits

_FORMATS = ("PNG", "JPEG", "WEBP")
_MOST_PICTURES = 16
_MOST_FIELDS = 64
_FIELD_BYTES = 2**20
_IMAGE_FIELD = re.compile(r"image(\[\d*\])?")
_SEED_BITS = 31  # what every generator takes
_SIZE = r"^(auto|[1-9]\d{0,4}x[1-9]\d{0,4})$"


class ImageRequest(BaseModel):
    """The fields of both endpoints, those that open servers add to OpenAI's included.

    A field of another name is an error: a misspelt one would be ignored in silence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: str = Field(min_length=1, max_length=32_000)
    model: str | None = None
    n: int | None = Field(None, ge=1, le=_MOST_PICTURES)
    size: str | None = Field(None, pattern=_SIZE)
    response_format: Literal["b64_json"] | None = None
    output_format: Literal["png"] | None = None
    background: Literal["auto", "opaque"] | None = None
    stream: bool | None = None

    seed: int | None = Field(None, ge=0, le=2**53)
    num_inference_steps: int | None = Field(None, ge=1)
    guidance_scale: float | None = Field(None, ge=0, allow_inf_nan=False)
    negative_prompt: str | None = Field(None, max_length=32_000)

    # Taken, and of no meaning here.
    quality: str | None = None
    style: str | None = None
    moderation: str | None = None
    input_fidelity: str | None = None
    user: str | None = None
    safety_identifier: str | None = None

    @field_validator("stream")
    @classmethod
    def _not_in_parts(cls, stream: bool | None) -> bool | None:
        if stream:
            raise ValueError("pictures are not streamed here")
        return stream

    def manner(self) -> SamplingParams:
        """How to draw, as far as the request says."""
        return SamplingParams(
            steps=self.num_inference_steps,
            guidance=self.guidance_scale,
            negative_prompt=self.negative_prompt,
            size=None if self.size == "auto" else self.size,
        )


@dataclass(frozen=True)
class ImageJob:
    """A request, checked: what is asked for and the pictures that came with it."""

    asked: ImageRequest
    images: tuple[EncodedImage, ...] = ()
    mask: EncodedImage | None = None

    def drawings(self, manner: SamplingParams) -> list[GenerationSpec]:
        """One for each picture, of seeds that follow one another.

        Args:
            manner: of the model, where the request says nothing.
        """
        asked = self.asked
        first = secrets.randbits(_SEED_BITS) if asked.seed is None else asked.seed
        complete = asked.manner().over(manner)
        return [
            GenerationSpec(asked.prompt, first + number, complete, self.images, self.mask)
            for number in range(asked.n or 1)
        ]


async def read_generation(request: Request, allowed: ImageLimits) -> ImageJob:
    """A request of JSON.

    Raises:
        Refusal: it cannot be read, or asks for what is not to be had.
    """
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise bad_request("send JSON, as Content-Type: application/json")
    try:
        asked = ImageRequest.model_validate_json(await request.body())
    except ValidationError as error:
        raise _problem(error) from None
    return _within(ImageJob(asked), allowed)


async def read_edit(request: Request, allowed: ImageLimits) -> ImageJob:
    """A form with one or several files `image` or `image[]`, and perhaps a `mask`.

    Raises:
        Refusal: see `read_generation`.
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise bad_request("send the pictures as files, in multipart/form-data")
    fields, files = await _form(request)
    images, mask = [], None
    for name, data in files:
        picture = _picture(data, name, allowed)
        if name == "mask":
            mask = await asyncio.to_thread(_mask, picture)
        elif _IMAGE_FIELD.fullmatch(name):
            images.append(picture)
        else:
            raise bad_request(f"no file is called {name} here: send image, image[] or mask", name)
    if not images:
        raise bad_request("send the picture to edit, or several, as files", "image")
    try:
        asked = ImageRequest.model_validate(fields)
    except ValidationError as error:
        raise _problem(error) from None
    return _within(ImageJob(asked, tuple(images), mask), allowed)


async def _form(request: Request) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
    """Fields, and files in order."""
    fields, files = {}, []
    try:
        async with request.form(
            max_files=_MOST_PICTURES + 1, max_fields=_MOST_FIELDS, max_part_size=_FIELD_BYTES
        ) as form:
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    files.append((name, await value.read()))
                else:
                    fields[name] = value
    except HTTPException as error:
        raise bad_request(error.detail) from None
    return fields, files


def _picture(data: bytes, name: str, allowed: ImageLimits) -> EncodedImage:
    """The bytes, whose header has been read; decoding is the replica's."""
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as header:
            width, height = header.size
    except Exception:  # Pillow raises errors of all kinds
        raise bad_request(
            f"{name} is no PNG, JPEG or WebP picture", name, "invalid_image"
        ) from None
    if width * height > allowed.pixels:
        raise bad_request(
            f"{name} has {width}x{height} pixels; at most {allowed.pixels} are taken",
            name,
            "image_too_large",
        )
    return EncodedImage(data)


def _mask(picture: EncodedImage) -> EncodedImage:
    """OpenAI's masks are transparent where to repaint, ours are white; those without alpha stay.

    Raises:
        Refusal: it cannot be decoded.
    """
    try:
        with Image.open(io.BytesIO(picture.data), formats=_FORMATS) as mask:
            if not mask.has_transparency_data:
                return picture
            return EncodedImage.of(ImageOps.invert(mask.convert("RGBA").getchannel("A")))
    except Exception:
        raise bad_request("mask cannot be decoded", "mask", "invalid_image") from None


def _within(wish: ImageJob, allowed: ImageLimits) -> ImageJob:
    asked = wish.asked
    if (asked.num_inference_steps or 0) > allowed.steps:
        raise bad_request(f"at most {allowed.steps} steps are taken", "num_inference_steps")
    width, height = asked.manner().pixels or (0, 0)
    if width * height > allowed.pixels:
        raise bad_request(f"{asked.size} has more than {allowed.pixels} pixels", "size")
    return wish


def _problem(error: ValidationError) -> APIError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = ".".join(map(str, first["loc"])) or None
    if first["type"] == "extra_forbidden":
        known = ", ".join(ImageRequest.model_fields)
        return bad_request(
            f"no field is called {name} here: send {known}", name, "unknown_parameter"
        )
    message = first["msg"].removeprefix("Value error, ")
    return bad_request(f"{name}: {message}" if name else message, name, "invalid_value")
