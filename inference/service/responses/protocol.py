"""What `POST /v1/responses` takes."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from ...generation.runner import PlanCheck
from ...http.errors import MAX_TEXT_LENGTH
from ..accepted_values import (
    Conversation,
    IgnoredObject,
    ImageChoice,
    ImageTool,
    ReasoningSettings,
    TextSettings,
    ToolCalls,
)
from ..request_models import (
    MAX_ITEMS,
    Base64Image,
    ContentPart,
    ConversationRequest,
    ConversationTurn,
    ImageRef,
    ImageURL,
    RequestPart,
    Role,
)
from ..run import check_plan


class InputText(RequestPart):
    """Text."""

    type: Literal["input_text", "output_text", "text"]
    text: str = Field(max_length=MAX_TEXT_LENGTH)


class InputImage(RequestPart):
    """An image (PNG, JPEG or WebP), as a data URI or an uploaded file."""

    type: Literal["input_image"]
    image_url: ImageURL | None = Field(None, description="`data:image/png;base64,...`")
    file_id: str | None = Field(None, max_length=100, description="Id of an uploaded file")
    detail: Literal["auto", "low", "high", "original"] | None = Field(
        None, description="Without effect: the models get the image as it is"
    )

    @model_validator(mode="after")
    def _has_one_source(self) -> "InputImage":
        if (self.image_url is None) == (self.file_id is None):
            raise ValueError("send either image_url or file_id")
        return self


class InputRefusal(RequestPart):
    """The refusal in an earlier answer."""

    type: Literal["refusal"]
    refusal: str = Field(max_length=MAX_TEXT_LENGTH)


Part = Annotated[InputText | InputImage | InputRefusal, Field(discriminator="type")]


class InputMessage(RequestPart):
    """A message; earlier answers may be sent back as they were received."""

    type: Literal["message"] = "message"
    role: Role
    content: (
        Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]
        | Annotated[list[Part], Field(max_length=MAX_ITEMS, fail_fast=True)]
    )


class InputImageCall(RequestPart):
    """An image of an earlier answer, sent back as it was received, or by its id."""

    type: Literal["image_generation_call"]
    id: str | None = Field(None, max_length=200)
    result: Base64Image | None = Field(None, description="The image in base64")
    status: str | None = Field(None, max_length=100, description="`failed`: there is no image")


class ItemReference(RequestPart):
    """An item of an earlier answer, by its id."""

    type: Literal["item_reference"]
    id: str = Field(max_length=200, pattern="^(msg|ig)_")


def _item_type(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else "message"


Item = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputImageCall, Tag("image_generation_call")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(
        _item_type,
        custom_error_type="unsupported_value",
        custom_error_message="its type is none of message, image_generation_call, item_reference",
    ),
]


class ResponsesRequest(ConversationRequest):
    """A request for an interleaved sequence."""

    input: (
        Annotated[str, Field(min_length=1, max_length=MAX_TEXT_LENGTH)]
        | Annotated[list[Item], Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)]
    )
    instructions: str | None = Field(None, max_length=MAX_TEXT_LENGTH)
    previous_response_id: str | None = Field(
        None, description="Go on from the last image of this response"
    )
    background: bool | None = Field(None, description="Answer at once, and run without the client")
    tools: list[ImageTool] | None = Field(None, max_length=1, fail_fast=True)
    tool_choice: Literal["auto", "required"] | ImageChoice | None = Field(
        None, description="`required`, or the tool: a plan without images is an error"
    )
    max_output_tokens: int | None = Field(
        None, ge=1, description="A plan of more tokens is an error; texts are not cut"
    )

    # Of these, values that would change the result are an error.
    conversation: Conversation = None
    include: list[str] | None = Field(None, fail_fast=True)
    max_tool_calls: ToolCalls = None
    reasoning: ReasoningSettings | None = None
    text: TextSettings | None = None

    # Accepted, without effect on the result.
    stream_options: IgnoredObject = None
    truncation: Literal["auto", "disabled"] | None = None

    @field_validator("include")
    @classmethod
    def _without_logprobs(cls, include: list[str] | None) -> None:
        if "message.output_text.logprobs" in (include or ()):
            raise ValueError("there are no log probabilities; leave them out")

    @property
    def image_tool(self) -> ImageTool:
        return self.tools[0] if self.tools else ImageTool(type="image_generation")

    def plan_check(self) -> PlanCheck:
        """What it demands of the plan."""
        return partial(
            check_plan,
            max_tokens=self.max_output_tokens,
            tokens_param="max_output_tokens",
            image_param=None if self.tool_choice in (None, "auto") else "tool_choice",
        )

    def turns(self) -> list[ConversationTurn]:
        """The conversation, in order."""
        system = [ConversationTurn("system", [self.instructions])] if self.instructions else []
        if isinstance(self.input, str):
            return [*system, ConversationTurn("user", [self.input])]
        return system + [_turn(item, item_param(n)) for n, item in enumerate(self.input)]


def item_param(number: int) -> str:
    """The place of an item in a request."""
    return f"input.{number}"


def part_param(item: str, number: int) -> str:
    """The place of a part of an item's content."""
    return f"{item}.content.{number}"


def _turn(item: Item, param: str) -> ConversationTurn:
    if isinstance(item, ItemReference):
        image = [ImageRef(item.id, f"{param}.id", "call")] if item.id.startswith("ig_") else []
        return ConversationTurn("assistant", image)  # earlier texts are not read again
    if isinstance(item, InputImageCall):
        return ConversationTurn("assistant", _image_of_call(item, param))
    if isinstance(item.content, str):
        return ConversationTurn(item.role, [item.content])
    parts = enumerate(item.content)
    content = [_content(part, part_param(param, number)) for number, part in parts]
    return ConversationTurn(item.role, content)


def _image_of_call(item: InputImageCall, param: str) -> list[ContentPart]:
    if item.result:
        return [ImageRef(item.result, f"{param}.result")]
    if item.id and item.status != "failed":
        return [ImageRef(item.id, f"{param}.id", "call")]
    return []


def _content(part: Part, param: str) -> ContentPart:
    match part:
        case InputImage(file_id=str(file_id)):
            return ImageRef(file_id, f"{param}.file_id", "file")
        case InputImage(image_url=str() | bytes() as url):
            return ImageRef(url, f"{param}.image_url")
        case InputImage():
            raise AssertionError("validated: it has a source")
        case InputText(text=text):
            return text
        case InputRefusal(refusal=refusal):
            return refusal
