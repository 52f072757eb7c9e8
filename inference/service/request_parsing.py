"""From a request's content to a `GenerationRequest`, and what its response repeats of it.

The size of images is checked before they are decoded.
"""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from warehouse import EncodedImage

from ..generation.requests import GenerationRequest
from ..http.body_reader import check_image
from ..http.errors import bad_request
from ..settings import LoopSettings
from .protocol import (
    ConversationTurn,
    ImageRef,
    RequestOptions,
    compose_text,
    critic_of,
    current_turn,
)
from .settings import RequestLimits

Json = dict[str, Any]

RESPONSE_PREFIX = "resp_"
_DATA = "data:"
_HTTP = ("http://", "https://")


@dataclass(frozen=True)
class RequestEcho:
    """What a response repeats of its request; stored as JSON with the response.

    Args:
        input_images: sha256 of the images given with the request.
        options: its `GenerationOptions`.
        fields: fields of the API's request that its response repeats.
    """

    generation_id: str
    text: str
    input_images: Sequence[str]
    options: Json
    fields: Json

    @property
    def response_id(self) -> str:
        return f"{RESPONSE_PREFIX}{self.generation_id}"

    def message_id(self, step_number: int) -> str:
        return f"msg_{self.generation_id}_{step_number}"

    def image_id(self, step_number: int) -> str:
        return f"ig_{self.generation_id}_{step_number}"


@dataclass(frozen=True)
class ParsedRequest:
    """A valid request.

    Args:
        fields: see `RequestEcho`.
        background: it continues when the client disconnects.
        store: its response is stored when it has ended.
    """

    generation: GenerationRequest
    fields: Json
    background: bool = False
    store: bool = True

    @property
    def echo(self) -> RequestEcho:
        generation = self.generation
        return RequestEcho(
            generation.generation_id,
            generation.text,
            tuple(image.sha256 for image in generation.images),
            generation.options.model_dump(),
            self.fields,
        )

    def with_key(self, key: str) -> "ParsedRequest":
        """The same request with the client's idempotency key."""
        return replace(self, generation=replace(self.generation, key=key))

    def resume(self, earlier: RequestEcho) -> "ParsedRequest":
        """The same request, to continue an earlier one."""
        generation = replace(self.generation, generation_id=earlier.generation_id)
        fields = self.fields | {"created_at": earlier.fields["created_at"]}
        return replace(self, generation=generation, fields=fields)


class RequestParser:
    """Checks requests against a service's limits and fills in a profile's defaults."""

    def __init__(self, defaults: LoopSettings, limits: RequestLimits) -> None:
        self._defaults, self._limits = defaults, limits

    async def parse(
        self,
        turns: Sequence[ConversationTurn],
        model: str | None,
        options: RequestOptions,
        param: str,
        previous_images: tuple[EncodedImage, ...] = (),
    ) -> GenerationRequest:
        """The request of a conversation.

        Args:
            param: the API's field that has the conversation, for error messages.
            previous_images: of the response that the request continues.

        Raises:
            APIError: the model is unknown, the text is empty or too long, an option exceeds a
                limit, or an image is unusable.
        """
        critic = critic_of(model)
        generation_options = options.generation_options(self._defaults, self._limits)
        content = current_turn(turns)
        text = compose_text(content, len(previous_images))
        if not any(isinstance(part, str) and part.strip() for part in content):
            raise bad_request("the request has no words: describe what you want to see", param)
        if len(text) > self._limits.text:
            raise bad_request(
                f"the text has {len(text)} characters; at most {self._limits.text} are allowed",
                param,
                "string_above_max_length",
            )
        refs = [part for part in content if isinstance(part, ImageRef)]
        images = (*previous_images, *await _load_images(refs, self._limits))
        return GenerationRequest(
            text, images, generation_options, options.critic or critic, "service"
        )


async def _load_images(refs: Sequence[ImageRef], limits: RequestLimits) -> tuple[EncodedImage, ...]:
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
