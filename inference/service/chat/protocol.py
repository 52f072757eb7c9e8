"""What `POST /v1/chat/completions` takes.

Pictures come and go as data URIs: in parts `image_url`, and in the Markdown of earlier answers
(`![name](data:image/png;base64,...)`), which clients send back as they got them.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..content import ConversationTurn, ImageRef, Piece, Role
from ..request_options import RequestOptions
from ..responses.protocol import Metadata

_MOST_ITEMS = 1000
# Bounded, so that no text makes it look at the same letters again and again.
_PICTURE = re.compile(r"!\[[^\]\n]{0,300}\]\((data:image/[a-z]{1,10};base64,[A-Za-z0-9+/=]+)\)")


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ImageAddress(_Part):
    """Where a picture is: PNG, JPEG or WebP."""

    url: str = Field(description="`data:image/png;base64,...`")


class ChatText(_Part):
    """Words."""

    type: Literal["text"]
    text: str


class ChatImage(_Part):
    """A picture."""

    type: Literal["image_url"]
    image_url: ImageAddress


class ChatRefusal(_Part):
    """An earlier answer that was none."""

    type: Literal["refusal"]
    refusal: str


ChatPart = Annotated[ChatText | ChatImage | ChatRefusal, Field(discriminator="type")]


class ChatMessage(_Part):
    """What a side says."""

    role: Role
    content: str | Annotated[list[ChatPart], Field(max_length=_MOST_ITEMS)] | None = None


class StreamOptions(_Part):
    """What a stream has beside the answer."""

    include_usage: bool | None = None


class ChatRequest(BaseModel):
    """A request for a story, as one more message of a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    messages: list[ChatMessage] = Field(min_length=1, max_length=_MOST_ITEMS)
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: Metadata | None = Field(None, max_length=16)
    n: Literal[1] | None = None
    seed: int | None = Field(None, ge=-(2**53), le=2**53)
    store: bool | None = None
    interleave: RequestOptions | None = None

    # Taken, and of no meaning here.
    frequency_penalty: float | None = None
    logit_bias: dict[str, Any] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    modalities: list[str] | None = None
    parallel_tool_calls: bool | None = None
    presence_penalty: float | None = None
    prompt_cache_key: str | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    temperature: float | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    verbosity: str | None = None

    def turns(self) -> list[ConversationTurn]:
        """What was said, in order."""
        numbered = enumerate(self.messages)
        return [_turn(message, f"messages.{number}") for number, message in numbered]


def _turn(message: ChatMessage, param: str) -> ConversationTurn:
    if message.content is None:
        return ConversationTurn(message.role, ())
    if isinstance(message.content, str):
        return ConversationTurn(message.role, tuple(_told(message.content, f"{param}.content")))
    pieces: list[Piece] = []
    for number, part in enumerate(message.content):
        pieces += _pieces(part, f"{param}.content.{number}")
    return ConversationTurn(message.role, tuple(pieces))


def _pieces(part: ChatText | ChatImage | ChatRefusal, param: str) -> list[Piece]:
    match part:
        case ChatImage(image_url=address):
            return [ImageRef(address.url, param)]
        case ChatText(text=text):
            return _told(text, param)
        case ChatRefusal(refusal=refusal):
            return [refusal]


def _told(text: str, param: str) -> list[Piece]:
    """A text's words and pictures, in order."""
    split = _PICTURE.split(text)  # every second one is an address
    pieces = [ImageRef(part, param) if odd % 2 else part for odd, part in enumerate(split)]
    return [piece for piece in pieces if piece]
