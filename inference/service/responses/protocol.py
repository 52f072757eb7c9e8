"""What `POST /v1/responses` takes, and the field `interleave` of what it answers."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, field_validator, model_validator

from ...http.errors import MAX_TEXT_LENGTH
from ..accepted_values import (
    Conversation,
    IgnoredObject,
    ImageChoice,
    ImageTool,
    ReasoningSettings,
    Temperature,
    TextSettings,
    ToolCalls,
    TopLogprobs,
    TopP,
)
from ..request_parsing import (
    MAX_ITEMS,
    Base64Image,
    ContentPart,
    ConversationRequest,
    ConversationTurn,
    ImageRef,
    ImageURL,
    Metadata,
    RequestOptions,
    RequestPart,
    Role,
)
from ..response_store import PlanRequirements


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
    model: str | None = Field(None, description="One of `/v1/models`")
    instructions: str | None = Field(None, max_length=MAX_TEXT_LENGTH)
    previous_response_id: str | None = Field(
        None, description="Go on from the last image of this response"
    )
    stream: bool | None = None
    background: bool | None = Field(None, description="Answer at once, and run without the client")
    store: bool | None = Field(None, description="False: delete the response once it is sent")
    metadata: Metadata | None = None
    interleave: RequestOptions | None = None

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
    temperature: Temperature = None
    text: TextSettings | None = None
    top_logprobs: TopLogprobs = None
    top_p: TopP = None

    # Accepted, without effect on the result.
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: IgnoredObject = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    stream_options: IgnoredObject = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None

    @field_validator("include")
    @classmethod
    def _without_logprobs(cls, include: list[str] | None) -> None:
        if "message.output_text.logprobs" in (include or ()):
            raise ValueError("there are no log probabilities; leave them out")

    @property
    def image_tool(self) -> ImageTool:
        return self.tools[0] if self.tools else ImageTool(type="image_generation")

    def requirements(self) -> PlanRequirements:
        """What it demands of the plan."""
        forced = self.tool_choice not in (None, "auto")
        image_param = "tool_choice" if forced else None
        return PlanRequirements(self.max_output_tokens, "max_output_tokens", image_param)

    def turns(self) -> list[ConversationTurn]:
        """The conversation, in order."""
        system = [ConversationTurn("system", [self.instructions])] if self.instructions else []
        if isinstance(self.input, str):
            return [*system, ConversationTurn("user", [self.input])]
        return system + [_turn(item, item_param(n)) for n, item in enumerate(self.input)]


class AttemptModel(BaseModel):
    """A generated image of a step, and the critic's verdict; null: not judged yet."""

    iteration: int
    prompt: str
    seed: int
    image: str = Field(description="Its sha256")
    seconds: float = Field(description="Of the generator's call")
    accepted: bool | None
    reasoning: str | None
    refined_prompt: str | None


class StepModel(BaseModel):
    """A step of the plan."""

    number: int
    name: str
    text: str
    prompt: str | None = Field(description="null: text only")
    started: bool
    image: str | None = Field(description="sha256 of the chosen one")
    iteration: int | None = Field(description="Of the chosen attempt")
    accepted: bool | None
    attempts: list[AttemptModel]


class SimulationModel(BaseModel):
    """What a demo world says about its answer."""

    notice: str = Field(description="What drew it, for people")
    not_drawn: list[str] = Field(description="Phrases of the request that it does not know")
    remarks: list[str] = Field(description="What cannot be done as requested, in sentences")
    refusal: str | None = Field(description="Why it cannot illustrate the request")
    suggestions: list[str] = Field(description="After a refusal: requests that it can illustrate")


class UsageModel(BaseModel):
    """Model calls of a role, and their tokens; null: its backend does not count them."""

    calls: int
    input_tokens: int | None
    output_tokens: int | None


class QueueModel(BaseModel):
    """Where a request waits."""

    position: int = Field(description="1: it is the next")
    expected_seconds: float | None = Field(
        description="Until it starts, estimated from the last requests; null: none has ended yet"
    )


class GenerationModel(BaseModel):
    """How a sequence was made: the field `interleave` of a response."""

    generation_id: str
    status: Literal[
        "queued",
        "in_progress",
        "complete",
        "exhausted",
        "stopped",
        "refused",
        "failed",
        "cancelled",
        "interrupted",
    ]
    error: str | None
    queue: QueueModel | None = Field(description="null: it does not wait for others (any more)")
    versions: dict[str, str] = Field(description="planner, generator and critic that made it")
    options: dict[str, Any] = Field(description="Options of the loop")
    completed_at: float | None = Field(description="Seconds since 1970; null: it was not completed")
    wasted_draws: int = Field(description="Images that were generated ahead and not needed")
    text: str
    input_images: list[str] = Field(description="sha256 of the images given with the request")
    simulation: SimulationModel | None = Field(
        description="null: an image model draws, or it is not known yet"
    )
    reasoning: str = Field(description="Of the planner")
    usage: dict[str, UsageModel] = Field(description="By role: planner, generator, critic")
    steps: list[StepModel]


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
