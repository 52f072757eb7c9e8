"""What requests of several APIs have in common: options, contents, and fields without meaning.

A value that would change the result elsewhere is an error that says what to do instead (`Only`);
nothing that a user relies on is ignored. Values that change nothing are accepted. Images are
decoded as they are validated, which happens in another process where they are large.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticKnownError, core_schema

from schemas.trajectories import OnExhausted
from warehouse import EncodedImage

from ..http.errors import (
    BAD_BASE64,
    MAX_TEXT_LENGTH,
    TOO_LONG,
    UNSUPPORTED,
    RequestModel,
    bad_request,
)

MAX_ITEMS = 1000
_MAX_PARTS = 5000  # of all items of a request
_MAX_TEXT_LENGTH = 2_000_000  # of all its texts
_MAX_METADATA = 16

Json = dict[str, Any]
Seed = Annotated[int, Field(ge=-(2**53), le=2**53)]
Role = Literal["system", "developer", "user", "assistant"]


@dataclass(frozen=True)
class Only:
    """Annotation of a field that has to have one of a few values, or null.

    Args:
        advice: what to do instead, after "... is not supported here: ".
        accepted: the other values.
    """

    advice: str
    accepted: tuple[Any, ...] = ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> Any:
        return {"enum": [*self.accepted, None], "description": f"Other values: {self.advice}"}

    def _check(self, value: Any) -> Any:
        if value is not None and value not in self.accepted:
            subject = "it is" if isinstance(value, list | dict | bytes) else f"{value!r:.60} is"
            context = {"subject": subject, "advice": self.advice}
            message = "{subject} not supported here: {advice}"
            raise PydanticCustomError(UNSUPPORTED, message, context)
        return value


NO_AGENTS = "planner and critic are set in the profile"
NO_FUNCTIONS = "functions and other tools are not called; leave them out"
NO_LOGPROBS = "there are no log probabilities; leave it out"
_NO_SCHEMA = "answers are text and pictures, never JSON of a schema; leave it out"

Choices = Annotated[int | None, Only("one answer per request; send several requests", (1,))]
Effort = Annotated[str | None, Only("planner and critic reason as their prompts say; leave it out")]
Verbosity = Annotated[str | None, Only("say it in words; leave it out", ("medium",))]
IgnoredObject = Annotated[dict[str, Any] | None, AfterValidator(lambda _: None)]


class TextFormat(BaseModel, extra="ignore", frozen=True, strict=True):
    """The form of texts: plain."""

    type: Annotated[str, Only(_NO_SCHEMA, ("text",))]


_GENERATOR = "the profile's generator draws as it is set there; leave it out, or send auto"
TOOL_TYPE = "image_generation"
NO_MASK = "say in words what to change, and where"
_FORMATS = "there are png, jpeg and webp; leave it out"


class ImageChoice(RequestModel):
    """The choice of the tool that every response here is made with; others are an error."""

    type: Annotated[str, Only(NO_FUNCTIONS, (TOOL_TYPE,))]

    @model_validator(mode="before")
    @classmethod
    def _only_type(cls, content: Any) -> Any:
        """Of another tool, the type is what is wrong, not its fields."""
        if isinstance(content, dict) and content.get("type") not in (None, TOOL_TYPE):
            return {"type": content["type"]}
        return content


class ImageSettings(RequestModel):
    """What the tool and the Images API both set, or refuse."""

    output_format: Literal["png", "jpeg", "webp"] | None = Field(
        None, description="Of the images; null: as they were generated"
    )
    output_compression: int | None = Field(
        None, ge=0, le=100, description="Quality of jpeg and webp; null: 100"
    )
    moderation: Literal["auto", "low"] | None = Field(None, description="Without effect")

    background: Annotated[str | None, Only(_GENERATOR, ("auto", "opaque"))] = None
    complexity: Annotated[str | None, Only(_GENERATOR)] = None
    frame_count: Annotated[int | None, Only(_FORMATS)] = None
    frame_duration_ms: Annotated[int | None, Only(_FORMATS)] = None
    input_fidelity: Annotated[str | None, Only(_GENERATOR, ("low",))] = None
    quality: Annotated[str | None, Only(_GENERATOR, ("auto",))] = None
    size: Annotated[str | None, Only(_GENERATOR, ("auto",))] = None
    svg: Annotated[dict[str, Any] | None, Only(_FORMATS)] = None


class ImageTool(ImageChoice, ImageSettings):
    """The tool, with what it sets."""

    action: Literal["auto", "generate", "edit"] | None = Field(
        None, description="`edit`: an error without an image; `generate`: one with images"
    )
    partial_images: int | None = Field(
        None,
        ge=0,
        le=3,
        description="Attempts of each step that a stream has as partial images, the first ones; "
        "null: all",
    )

    input_image_mask: Annotated[dict[str, Any] | None, Only(NO_MASK)] = None
    model: Annotated[str | None, Only("the profile's generator draws; leave it out")] = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "ImageTool":
        """The tool in the stored fields of a request."""
        tools = fields.get("tools") or [{"type": TOOL_TYPE}]
        return cls.model_validate(tools[0])

    def check_images(self, images: int) -> None:
        """Raise APIError if the request's number of images does not fit the action."""
        param = "tools.0.action"
        if self.action == "edit" and not images:
            raise bad_request(f"{param}: edit, but the request has no image", param)
        if self.action == "generate" and images:
            message = "generate, but the request has images, which would be edited; send auto"
            raise bad_request(f"{param}: {message}", param)

    def shows_attempt(self, iteration: int) -> bool:
        """Whether a stream has that image of a step as a partial one."""
        return self.partial_images is None or iteration < self.partial_images

    def encode(self, image: EncodedImage) -> str:
        """An image in base64, in the requested format; BadImageError: it cannot be decoded."""
        if self.output_format:
            quality = 100 if self.output_compression is None else self.output_compression
            image = image.encoded(self.output_format, quality)
        return base64.b64encode(image.data).decode()


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
    planner: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Which planner: `promoted`, name@version, or one that the profile allows",
    )
    critic: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Which critic judges, likewise; or `rl` or `sft`: the checkpoint of that "
        "training. `model` may also say it",
    )


@dataclass(frozen=True)
class ImageRef:
    """An image of a request.

    Args:
        source: its content, a URL that is no data URI, or the id of a stored image.
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
    temperature: Annotated[
        float | None, Only(f"{NO_AGENTS}; equal seeds give equal results; leave it out", (0, 1))
    ] = None
    top_logprobs: Annotated[int | None, Only(NO_LOGPROBS, (0,))] = None
    top_p: Annotated[float | None, Only(f"{NO_AGENTS}; leave it out", (1,))] = None

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
