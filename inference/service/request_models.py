"""What requests of several APIs have in common: their options, contents, and ignored fields.

Images are decoded as they are validated, which happens in another process where they are large.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError, PydanticKnownError

from schemas.trajectories import OnExhausted

from ..http.errors import BAD_BASE64, MAX_TEXT_LENGTH, TOO_LONG, RequestModel
from .accepted_values import IgnoredObject, Temperature, TopLogprobs, TopP

MAX_ITEMS = 1000
_MAX_PARTS = 5000  # of all items of a request
_MAX_TEXT_LENGTH = 2_000_000  # of all its texts
_MAX_METADATA = 16

Json = dict[str, Any]
Seed = Annotated[int, Field(ge=-(2**53), le=2**53)]
Role = Literal["system", "developer", "user", "assistant"]


def _check_count(content: object) -> object:
    """Before the entries are validated: pydantic would build an error for each of a million."""
    if isinstance(content, dict) and len(content) > _MAX_METADATA:
        raise ValueError(f"at most {_MAX_METADATA} entries are allowed")
    return content


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    BeforeValidator(_check_count),
    Field(max_length=_MAX_METADATA),
]


AgentReference = Annotated[str, Field(min_length=1, max_length=200)]


def _decode_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise PydanticKnownError("string_type")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise PydanticCustomError(BAD_BASE64, "this is not base64") from None


def decode_data_uri(url: object) -> str | bytes:
    """The content of a data URI; another URL as it is."""
    if not isinstance(url, str):
        raise PydanticKnownError("string_type")
    if url[:5].lower() != "data:":
        if len(url) > MAX_TEXT_LENGTH:
            raise PydanticKnownError("string_too_long", {"max_length": MAX_TEXT_LENGTH})
        return url
    head, comma, data = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise PydanticCustomError(BAD_BASE64, "the data URI is not in base64")
    return _decode_base64(data)


Base64Image = Annotated[bytes, PlainValidator(_decode_base64), WithJsonSchema({"type": "string"})]
ImageURL = Annotated[
    str | bytes, PlainValidator(decode_data_uri), WithJsonSchema({"type": "string"})
]


class RequestPart(BaseModel, extra="ignore", frozen=True, strict=True):
    """A part of a request's content; unknown fields are ignored."""


class RequestOptions(RequestModel):
    """The field `interleave` of a request: loop settings that differ from the profile's."""

    t_max: int | None = Field(None, ge=1, le=100, description="Attempts allowed per step")
    on_exhausted: OnExhausted | None = Field(
        None, description="After that many: go on with the last image, the best, or stop"
    )
    conditioning: Literal["last", "all"] | None = Field(
        None, description="Images that the generator gets: the last one, or all"
    )
    seed: Seed | None = Field(
        None, description="Equal requests with equal seeds give equal results"
    )
    max_steps: int | None = Field(None, ge=1, le=10_000, description="Longer plans are an error")
    candidates: int | None = Field(
        None, ge=1, le=16, description="Images generated for each prompt of a step"
    )
    draw_ahead: bool | None = Field(
        None, description="Generate the next step's image while the critic judges this one"
    )
    planner: AgentReference | None = Field(
        None, description="Which planner: `promoted`, name@version, or one that the profile allows"
    )
    critic: AgentReference | None = Field(
        None,
        description="Which critic judges, likewise; or `rl` or `sft`: the checkpoint of that "
        "training. `model` may also say it",
    )


@dataclass(frozen=True)
class ImageRef:
    """An image of a request.

    Args:
        source: its content, an http(s) URL, or the id of a stored image.
        param: its place in the request.
    """

    source: str | bytes
    param: str
    kind: Literal["url", "file", "call"] = "url"


ContentPart = str | ImageRef


@dataclass(frozen=True)
class ConversationTurn:
    """What one side said."""

    role: Role
    content: Sequence[ContentPart]


class ConversationRequest(RequestModel):
    """A request that has a conversation."""

    model: str | None = Field(None, description="One of `/v1/models`")
    stream: bool | None = None
    store: bool | None = Field(None, description="False: delete the response once it is sent")
    metadata: Metadata | None = None
    interleave: RequestOptions | None = None

    # Of these, values that would change the result are an error.
    temperature: Temperature = None
    top_logprobs: TopLogprobs = None
    top_p: TopP = None

    # Accepted, without effect on the result.
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: IgnoredObject = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    user: str | None = None

    def turns(self) -> list[ConversationTurn]:
        """The conversation, in order."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        parts = [part for turn in self.turns() for part in turn.content]
        length = sum(len(part) for part in parts if isinstance(part, str))
        if length > _MAX_TEXT_LENGTH or len(parts) > _MAX_PARTS:
            message = "the conversation is too long; leave out its first messages"
            raise PydanticCustomError(TOO_LONG, message)
        return self
