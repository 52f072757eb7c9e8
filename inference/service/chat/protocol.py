"""What `POST /v1/chat/completions` takes.

Images are data URIs: in parts `image_url`, and in the Markdown of earlier answers
(`![name](data:image/png;base64,...)`), which clients send back as they received them.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..request_parsing import (
    MAX_ITEMS,
    MAX_SEED,
    ContentPart,
    ConversationTurn,
    ImageRef,
    Metadata,
    RequestOptions,
    RequestPart,
    Role,
)

# Bounded, so that matching takes linear time.
_MARKDOWN_IMAGE = re.compile(
    r"!\[[^\]\n]{0,300}\]\((data:image/[a-z]{1,10};base64,[A-Za-z0-9+/=]+)\)"
)


class ImageAddress(RequestPart):
    """An image: PNG, JPEG or WebP."""

    url: str = Field(description="`data:image/png;base64,...`")


class ChatText(RequestPart):
    """Text."""

    type: Literal["text"]
    text: str


class ChatImage(RequestPart):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageAddress


class ChatRefusal(RequestPart):
    """The refusal in an earlier answer."""

    type: Literal["refusal"]
    refusal: str


ChatPart = Annotated[ChatText | ChatImage | ChatRefusal, Field(discriminator="type")]


class ChatMessage(RequestPart):
    """A message of the conversation."""

    role: Role
    content: str | Annotated[list[ChatPart], Field(max_length=MAX_ITEMS)] | None = None


class StreamOptions(RequestPart):
    """What a stream contains besides the message."""

    include_usage: bool | None = None


class ChatRequest(BaseModel):
    """A request for the next message of a conversation."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_ITEMS)
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: Metadata | None = Field(None, max_length=16)
    n: Literal[1] | None = None
    seed: int | None = Field(None, ge=-MAX_SEED, le=MAX_SEED)
    store: bool | None = None
    interleave: RequestOptions | None = None

    # Accepted, without effect.
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
        """The conversation, in order."""
        messages = enumerate(self.messages)
        return [
            ConversationTurn(message.role, _content(message.content, f"messages.{n}.content"))
            for n, message in messages
        ]


def _content(content: str | Sequence[ChatPart] | None, param: str) -> list[ContentPart]:
    if isinstance(content, str):
        return _split_images(content, param)
    numbered = enumerate(content or ())
    return [part for n, each in numbered for part in _parts(each, f"{param}.{n}")]


def _parts(part: ChatPart, param: str) -> list[ContentPart]:
    match part:
        case ChatImage(image_url=address):
            return [ImageRef(address.url, param)]
        case ChatText(text=text):
            return _split_images(text, param)
        case ChatRefusal(refusal=refusal):
            return [refusal]


def _split_images(text: str, param: str) -> list[ContentPart]:
    """The words and images of Markdown, in order."""
    split = _MARKDOWN_IMAGE.split(text)  # every second part is a data URI
    parts = [ImageRef(part, param) if odd % 2 else part for odd, part in enumerate(split)]
    return [part for part in parts if part]
