"""From a request's content to a `GenerationRequest`, and what its response repeats of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from warehouse import EncodedImage

from ..generation.requests import GenerationRequest
from ..http.errors import bad_request
from ..settings import LoopSettings
from .image_inputs import load_images
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
        images = (*previous_images, *await load_images(refs, self._limits))
        return GenerationRequest(
            text, images, generation_options, options.critic or critic, "service"
        )
