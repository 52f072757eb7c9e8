"""The chat API, `/v1/chat/completions`: a generation as one message.

Text is Markdown; images are data URIs. A request has them in parts `image_url`, and in the Markdown
of earlier answers (`![name](data:image/png;base64,...)`), which clients send back as they received
them.
"""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from ..events import RunEvent, StepAccepted, StepExhausted, StepStarted
from ..generation.requests import GenerationRequest
from ..generation.runner import PlanCheck
from ..generation.trajectory_view import StepView
from .openapi import describe_body, describe_response
from .request_models import (
    MAX_ITEMS,
    NO_AGENTS,
    NO_FUNCTIONS,
    NO_LOGPROBS,
    Choices,
    ContentPart,
    ConversationRequest,
    ConversationTurn,
    Effort,
    ImageRef,
    ImageURL,
    Json,
    Only,
    RequestOptions,
    RequestPart,
    Role,
    Seed,
    TextFormat,
    Verbosity,
    decode_data_uri,
)
from .response_builder import ResponseBuilder
from .run import GenerationRun, check_plan
from .serving import JSON, GenerationServing, load_images

# Bounded, so that matching takes linear time.
_MARKDOWN_IMAGE = re.compile(
    r"!\[[^\]\n]{0,300}\]\((data:image/[a-z]{1,10};base64,[A-Za-z0-9+/=]+)\)"
)
_CHUNK = "chat.completion.chunk"
_DONE = b"data: [DONE]\n\n"
_NOT_IN_ALT_TEXT = re.compile(r"[\[\]()\\\n]")
_MAX_TITLE_LENGTH = 200


def _split_markdown(text: object) -> list[str | bytes]:
    """The words and images of Markdown, in order."""
    if not isinstance(text, str):
        raise PydanticKnownError("string_type")
    split = enumerate(_MARKDOWN_IMAGE.split(text))  # every second part is a data URI
    return [decode_data_uri(part) if odd % 2 else part for odd, part in split if part]


Markdown = Annotated[
    list[str | bytes], PlainValidator(_split_markdown), WithJsonSchema({"type": "string"})
]


_Penalty = Annotated[float | None, Only(f"{NO_AGENTS}; leave it out", (0,))]
_Functions = Annotated[
    Annotated[list[dict[str, Any]], Field(fail_fast=True)] | None, Only(NO_FUNCTIONS, ([],))
]


class ImageAddress(RequestPart):
    """An image: PNG, JPEG or WebP."""

    url: ImageURL = Field(description="`data:image/png;base64,...`")


class ChatText(RequestPart):
    """Text."""

    type: Literal["text"]
    text: Markdown


class ChatImage(RequestPart):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageAddress


class ChatRefusal(RequestPart):
    """The refusal in an earlier answer."""

    type: Literal["refusal"]
    refusal: str


ChatPart = Annotated[ChatText | ChatImage | ChatRefusal, Field(discriminator="type")]


ChatParts = Annotated[list[ChatPart], Field(max_length=MAX_ITEMS, fail_fast=True)]


class ChatMessage(RequestPart):
    """A message of the conversation."""

    role: Role
    content: Markdown | ChatParts | None = None
    tool_calls: _Functions = None


class StreamOptions(RequestPart):
    """What a stream contains besides the message."""

    include_usage: bool | None = None


class ChatRequest(ConversationRequest):
    """A request for the next message of a conversation."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)
    stream_options: StreamOptions | None = None
    seed: Seed | None = None
    max_completion_tokens: int | None = Field(
        None, ge=1, description="A plan of more tokens is an error; texts are not cut"
    )
    max_tokens: int | None = Field(None, ge=1, description="Likewise")

    # Of these, values that would change the result are an error.
    frequency_penalty: _Penalty = None
    logit_bias: Annotated[dict[str, Any] | None, Only(f"{NO_AGENTS}; leave it out", ({},))] = None
    logprobs: Annotated[bool | None, Only(NO_LOGPROBS, (False,))] = None
    modalities: list[Literal["text", "image"]] | None = Field(None, fail_fast=True)
    n: Choices = None
    presence_penalty: _Penalty = None
    reasoning_effort: Effort = None
    response_format: TextFormat | None = None
    stop: Annotated[
        str | Annotated[list[str], Field(fail_fast=True)] | None,
        Only("texts are not cut; leave it out", ([],)),
    ] = None
    tools: _Functions = None
    tool_choice: Annotated[str | dict[str, Any] | None, Only(NO_FUNCTIONS, ("auto", "none"))] = None
    verbosity: Verbosity = None

    def plan_check(self) -> PlanCheck:
        """What it demands of the plan."""
        if self.max_completion_tokens is None:
            return partial(check_plan, max_tokens=self.max_tokens, tokens_param="max_tokens")
        most, param = self.max_completion_tokens, "max_completion_tokens"
        return partial(check_plan, max_tokens=most, tokens_param=param)

    def turns(self) -> list[ConversationTurn]:
        """The conversation, in order."""
        return [
            ConversationTurn(message.role, _content(message.content or (), f"messages.{n}.content"))
            for n, message in enumerate(self.messages)
        ]


class ChatServing(GenerationServing):
    """Creates chat completions."""

    def add_routes(self, app: FastAPI) -> None:
        described = describe_response("InterleavedChat", stream=True)
        body = describe_body(ChatRequest)
        add_route = app.post("/v1/chat/completions", responses=described, openapi_extra=body)
        add_route(self.create_chat_completion)

    async def create_chat_completion(self, request: Request) -> Response:
        """Start a request; answer with its stream, or with the message when it has ended."""
        api_request, body = await self.read(request, ChatRequest)
        generation = await self._parse(api_request)
        run = await self.open(
            request,
            body,
            generation,
            api_request.model,
            api_request.plan_check(),
            metadata=api_request.metadata or {},
            store=api_request.store is not False,
        )
        if api_request.stream:
            options = api_request.stream_options
            return await self.stream(run, _chunks(run, bool(options and options.include_usage)))
        await self.wait_ended(run, request)
        await load_images(run.generated_images)
        return Response(orjson.dumps(_completion(run)), media_type=JSON)

    async def _parse(self, request: ChatRequest) -> GenerationRequest:
        options = request.interleave or RequestOptions()
        if request.seed is not None and options.seed is None:
            options = options.model_copy(update={"seed": request.seed})
        return await self.parser.parse(request.turns(), request.model, options, "messages")


def _completion(run: GenerationRun) -> Json:
    """The message of a run that has ended."""
    builder = ResponseBuilder(run)
    parts = (part for event in run.events for part in _markdown(builder, event))
    message = {"content": "".join(parts).strip(), "role": "assistant"}
    choice = {"finish_reason": _finish_reason(builder), "index": 0, "message": message}
    more = {"usage": builder.usage.chat(), "interleave": builder.interleave()}
    return _payload(run, "chat.completion", [choice]) | more


async def _chunks(run: GenerationRun, with_usage: bool) -> AsyncIterator[bytes]:
    """The message in parts, as they are generated; an error is the last one."""
    builder = ResponseBuilder(run)
    yield _encode(_chunk(run, {"content": "", "role": "assistant"}))
    async for event in run.follow():
        for part in _markdown(builder, event):
            yield _encode(_chunk(run, {"content": part}))
    if failure := builder.failure():
        yield _encode({"error": failure.error})
        return
    end = _chunk(run, {}, _finish_reason(builder))
    yield _encode(end | {"interleave": builder.interleave()})
    if with_usage:
        yield _encode(_payload(run, _CHUNK, []) | {"usage": builder.usage.chat()})
    yield _DONE


def _markdown(builder: ResponseBuilder, event: RunEvent) -> Iterator[str]:
    """What the next event adds to the message."""
    builder.note(event)
    match event:
        case StepStarted():
            step = builder.state.steps[-1]
            text = f"{step.text}\n\n" if step.text else ""
            yield f"**{_title(step)}**\n\n{text}"
        case StepAccepted(chosen=chosen) | StepExhausted(chosen=chosen):
            if chosen:
                title = _title(builder.state.steps[-1])
                yield f"![{title}]({chosen.draw.image.data_url})\n\n"


def _title(step: StepView) -> str:
    title = " ".join(_NOT_IN_ALT_TEXT.sub(" ", step.step.step_name).split())
    return title[:_MAX_TITLE_LENGTH] or "Picture"


def _chunk(run: GenerationRun, delta: Json, finish: str | None = None) -> Json:
    choice = {"delta": delta, "index": 0, "finish_reason": finish}
    return _payload(run, _CHUNK, [choice])


def _payload(run: GenerationRun, kind: str, choices: list[Json]) -> Json:
    """Fields that messages and chunks have in common, in the order of OpenAI's own classes."""
    return {
        "id": f"chatcmpl-{run.request.generation_id}",
        "choices": choices,
        "created": int(run.created_at),
        "model": run.fields["model"],
        "object": kind,
    }


def _encode(payload: Json) -> bytes:
    """A server-sent event without a name."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def _finish_reason(builder: ResponseBuilder) -> str:
    """`length`: it stopped before its last step."""
    return "length" if builder.status in ("stopped", "cancelled") else "stop"


def _content(content: Sequence[str | bytes | ChatPart], param: str) -> list[ContentPart]:
    return [part for n, each in enumerate(content) for part in _parts(each, param, n)]


def _parts(part: str | bytes | ChatPart, param: str, number: int) -> list[ContentPart]:
    match part:
        case ChatImage(image_url=address):
            return [ImageRef(address.url, f"{param}.{number}.image_url.url")]
        case ChatText(text=text):
            return [each for piece in text for each in _parts(piece, f"{param}.{number}", 0)]
        case ChatRefusal(refusal=refusal):
            return [refusal]
        case bytes():
            return [ImageRef(part, param)]
    return [part]
