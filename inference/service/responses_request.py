"""What `POST /v1/responses` takes, and how its items are stored: as the API lists them.

Of a stored item, an image is null, or the sha256 of one that the generation began with.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from ..generation.runner import PlanCheck
from ..http.errors import MAX_TEXT_LENGTH, RequestModel
from .request_models import (
    MAX_ITEMS,
    Base64Image,
    ContentPart,
    ConversationRequest,
    ConversationTurn,
    Effort,
    IgnoredObject,
    ImageChoice,
    ImageRef,
    ImageTool,
    ImageURL,
    Json,
    Only,
    RequestPart,
    Role,
    TextFormat,
    Verbosity,
)
from .run import check_plan

Images = Mapping[str, str]
"""Place in the request -> sha256, of the images that the generation begins with."""


def stored_message(role: str, content: list[Json]) -> Json:
    return {"type": "message", "role": role, "status": "completed", "content": content}


def stored_text(role: str, text: str) -> Json:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


class InputText(RequestPart):
    """Text."""

    type: Literal["input_text", "output_text", "text"]
    text: str = Field(max_length=MAX_TEXT_LENGTH)

    def content(self, param: str) -> ContentPart:
        return self.text

    def stored(self, role: str, param: str, images: Images) -> Json:
        return stored_text(role, self.text)


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

    def content(self, param: str) -> ContentPart:
        if self.file_id is not None:
            return ImageRef(self.file_id, f"{param}.file_id", "file")
        assert self.image_url is not None, "validated: it has a source"
        return ImageRef(self.image_url, f"{param}.image_url")

    def stored(self, role: str, param: str, images: Images) -> Json:
        image = {"type": self.type, "detail": self.detail or "auto", "file_id": self.file_id}
        name = "image_url" if self.file_id is None else "file_id"
        return image | {"image_url": images.get(f"{param}.{name}")}


class InputRefusal(RequestPart):
    """The refusal in an earlier answer."""

    type: Literal["refusal"]
    refusal: str = Field(max_length=MAX_TEXT_LENGTH)

    def content(self, param: str) -> ContentPart:
        return self.refusal

    def stored(self, role: str, param: str, images: Images) -> Json:
        return {"type": self.type, "refusal": self.refusal}


Part = Annotated[InputText | InputImage | InputRefusal, Field(discriminator="type")]


class InputMessage(RequestPart):
    """A message; earlier answers may be sent back as they were received."""

    type: Literal["message"] = "message"
    role: Role
    content: (
        Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]
        | Annotated[list[Part], Field(max_length=MAX_ITEMS, fail_fast=True)]
    )

    def turn(self, param: str) -> ConversationTurn:
        content = [part.content(place) for part, place in self._parts(param)]
        return ConversationTurn(self.role, content)

    def stored(self, param: str, images: Images) -> Json:
        parts = self._parts(param)
        content = [part.stored(self.role, place, images) for part, place in parts]
        return stored_message(self.role, content)

    def _parts(self, param: str) -> Iterator[tuple[Part, str]]:
        """The parts of its content with their places."""
        if isinstance(self.content, str):
            yield InputText(type="text", text=self.content), param
            return
        for number, part in enumerate(self.content):
            yield part, f"{param}.content.{number}"


class InputImageCall(RequestPart):
    """An image of an earlier answer, sent back as it was received, or by its id."""

    type: Literal["image_generation_call", "item_reference"]
    id: str | None = Field(None, max_length=200)
    result: Base64Image | None = Field(None, description="The image in base64")
    status: str | None = Field(None, max_length=100, description="`failed`: there is no image")

    def turn(self, param: str) -> ConversationTurn:
        content = []
        if self.result:
            content = [ImageRef(self.result, f"{param}.result")]
        elif self.id and self.status != "failed":
            content = [ImageRef(self.id, f"{param}.id", "call")]
        return ConversationTurn("assistant", content)

    def stored(self, param: str, images: Images) -> Json:
        image = images.get(f"{param}.result") or images.get(f"{param}.id")
        call = {"type": "image_generation_call", "id": self.id, "status": "completed"}
        return call | {"result": image}


class ItemReference(RequestPart):
    """A message of an earlier answer, by its id; its text is not read again."""

    type: Literal["item_reference"]
    id: str = Field(max_length=200, pattern="^(msg|ig)_")

    def turn(self, param: str) -> ConversationTurn:
        return ConversationTurn("assistant", [])

    def stored(self, param: str, images: Images) -> Json:
        return stored_message("assistant", []) | {"id": self.id}


def _item_type(item: Any) -> str:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "item_reference" and str(item.get("id")).startswith("ig_"):
        return "image_generation_call"
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
    conversation: Annotated[
        str | dict[str, Any] | None,
        Only("send previous_response_id, or the earlier messages as input"),
    ] = None
    include: list[str] | None = Field(None, fail_fast=True)
    max_tool_calls: Annotated[
        int | None, Only("limit pictures with interleave.max_steps and interleave.t_max")
    ] = None
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
        items = enumerate(self._items())
        return system + [item.turn(f"input.{number}") for number, item in items]

    def stored_items(self, images: Images) -> list[Json]:
        """The items in order."""
        items = enumerate(self._items())
        return [item.stored(f"input.{number}", images) for number, item in items]

    def _items(self) -> list[Item]:
        if isinstance(self.input, str):
            return [InputMessage(role="user", content=self.input)]
        return self.input
