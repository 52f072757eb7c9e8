"""What `POST /v1/responses` takes: OpenAI's fields and one of ours, `interleave`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from ..content import ConversationTurn, ImageRef, Piece, Role
from ..request_options import RequestOptions

_LONGEST = 200_000  # of a text; the service's own limit is a setting
_MOST_ITEMS = 1000

Metadata = dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]]


class _Item(BaseModel):
    """A part of the input; what we do not know of it has no meaning here."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class InputText(_Item):
    """Words."""

    type: Literal["input_text", "output_text", "text"]
    text: str = Field(max_length=_LONGEST)


class InputImage(_Item):
    """A picture, as a data URI: PNG, JPEG or WebP."""

    type: Literal["input_image"]
    image_url: str = Field(description="`data:image/png;base64,...`")


class Refused(_Item):
    """An earlier answer that was none."""

    type: Literal["refusal"]
    refusal: str = Field(max_length=_LONGEST)


Part = Annotated[InputText | InputImage | Refused, Field(discriminator="type")]


class InputMessage(_Item):
    """What a side says; an answer that was given earlier may be sent back as it came."""

    type: Literal["message"] = "message"
    role: Role
    content: (
        Annotated[str, Field(max_length=_LONGEST)]
        | Annotated[list[Part], Field(max_length=_MOST_ITEMS)]
    )


class PictureCall(_Item):
    """A picture of an earlier answer, sent back as it came."""

    type: Literal["image_generation_call"]
    result: str | None = Field(None, description="The picture in base64")


def _kind(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else "message"


Item = Annotated[
    Annotated[InputMessage, Tag("message")] | Annotated[PictureCall, Tag("image_generation_call")],
    Discriminator(_kind),
]


class ResponsesRequest(BaseModel):
    """A request for a story.

    A field of another name is an error: a misspelt one would be ignored in silence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    input: (
        Annotated[str, Field(min_length=1, max_length=_LONGEST)]
        | Annotated[list[Item], Field(min_length=1, max_length=_MOST_ITEMS)]
    )
    model: str | None = Field(None, description="`interleave`, `interleave-rl`, `interleave-sft`")
    instructions: str | None = Field(None, max_length=_LONGEST)
    previous_response_id: str | None = Field(
        None, description="Go on from the last picture of this response"
    )
    stream: bool | None = None
    background: bool | None = Field(None, description="Answer at once, and go on without us")
    store: bool | None = Field(None, description="False: forget the response once it is sent")
    metadata: Metadata | None = Field(None, max_length=16)
    interleave: RequestOptions | None = None

    # Taken, and of no meaning here.
    conversation: None = None
    include: list[str] | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    reasoning: dict[str, Any] | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None

    def turns(self) -> list[ConversationTurn]:
        """What was said, in order."""
        said = [ConversationTurn("system", (self.instructions,))] if self.instructions else []
        if isinstance(self.input, str):
            return [*said, ConversationTurn("user", (self.input,))]
        return said + [_turn(item, f"input.{number}") for number, item in enumerate(self.input)]


def _turn(item: InputMessage | PictureCall, param: str) -> ConversationTurn:
    if isinstance(item, PictureCall):
        shown = (ImageRef(f"data:image/png;base64,{item.result}", param),) if item.result else ()
        return ConversationTurn("assistant", shown)
    if isinstance(item.content, str):
        return ConversationTurn(item.role, (item.content,))
    parts = enumerate(item.content)
    return ConversationTurn(
        item.role, tuple(_piece(part, f"{param}.content.{n}") for n, part in parts)
    )


def _piece(part: InputText | InputImage | Refused, param: str) -> Piece:
    match part:
        case InputImage(image_url=url):
            return ImageRef(url, param)
        case InputText(text=text):
            return text
        case Refused(refusal=refusal):
            return refusal
