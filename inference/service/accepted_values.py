"""Fields of OpenAI's APIs whose values have no meaning here: which ones a request may still have.

A value that would change the result elsewhere is an error that says what to do instead; nothing
that a user relies on is ignored. Values that change nothing are accepted.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from warehouse import EncodedImage

from ..http.errors import UNSUPPORTED, RequestModel, bad_request


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


_AGENTS = "planner and critic are set in the profile"
_SCHEMA = "answers are text and pictures, never JSON of a schema; leave it out"
_FUNCTIONS = "functions and other tools are not called; leave them out"

Temperature = Annotated[
    float | None, Only(f"{_AGENTS}; equal seeds give equal results; leave it out", (0, 1))
]
TopP = Annotated[float | None, Only(f"{_AGENTS}; leave it out", (1,))]
Penalty = Annotated[float | None, Only(f"{_AGENTS}; leave it out", (0,))]
LogitBias = Annotated[dict[str, Any] | None, Only(f"{_AGENTS}; leave it out", ({},))]
Logprobs = Annotated[bool | None, Only("there are no log probabilities; leave it out", (False,))]
TopLogprobs = Annotated[int | None, Only("there are no log probabilities; leave it out", (0,))]
Stop = Annotated[
    str | Annotated[list[str], Field(fail_fast=True)] | None,
    Only("texts are not cut; leave it out", ([],)),
]
Choices = Annotated[int | None, Only("one answer per request; send several requests", (1,))]
Effort = Annotated[str | None, Only("planner and critic reason as their prompts say; leave it out")]
Verbosity = Annotated[str | None, Only("say it in words; leave it out", ("medium",))]
_Tools = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
Functions = Annotated[_Tools | None, Only(_FUNCTIONS, ([],))]
FunctionChoice = Annotated[str | dict[str, Any] | None, Only(_FUNCTIONS, ("auto", "none"))]
ToolType = Annotated[str, Only(_FUNCTIONS, ("image_generation",))]
Conversation = Annotated[
    str | dict[str, Any] | None, Only("send previous_response_id, or the earlier messages as input")
]
ToolCalls = Annotated[
    int | None, Only("limit pictures with interleave.max_steps and interleave.t_max")
]
IgnoredObject = Annotated[dict[str, Any] | None, AfterValidator(lambda _: None)]


class TextFormat(BaseModel, extra="ignore", frozen=True, strict=True):
    """The form of texts: plain."""

    type: Annotated[str, Only(_SCHEMA, ("text",))]


class TextSettings(RequestModel):
    """The form of texts: plain, as long as the planner writes them."""

    format: TextFormat | None = None
    verbosity: Verbosity = None


class ReasoningSettings(RequestModel):
    """How the agents reason: nothing of it can be set here."""

    effort: Effort = None
    summary: Annotated[
        str | None, Only("the field interleave.reasoning of the response has the planner's")
    ] = None
    generate_summary: Annotated[str | None, Only("leave it out")] = None


_GENERATOR = "the profile's generator draws as it is set there; leave it out, or send auto"
TOOL_TYPE = "image_generation"
NO_MASK = "say in words what to change, and where"
_FORMATS = "there are png, jpeg and webp; leave it out"


class ImageChoice(RequestModel):
    """The choice of the tool that every response here is made with; others are an error."""

    type: ToolType

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
