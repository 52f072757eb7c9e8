"""The endpoint of the chat API: a generation as one message.

Text is Markdown; images are data URIs in it.
"""

import base64
import re
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import orjson
from fastapi import FastAPI, Request, Response
from openai.types import CompletionUsage
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessage,
    chat_completion,
    chat_completion_chunk,
)

from ...events import StepAccepted, StepExhausted, StepStarted
from ...generation.event_log import RunEvent
from ...generation.generation_state import StepState
from ..openapi import describe_body, describe_response
from ..protocol import DEFAULT_MODEL, RequestOptions
from ..request_parsing import ParsedRequest, RequestEcho
from ..responses.response_builder import ResponseBuilder
from ..run import GenerationRun
from ..serving import JSON, GenerationServing, parse_body
from .protocol import ChatRequest

Json = dict[str, Any]
FinishReason = Literal["stop", "length"]

_DONE = b"data: [DONE]\n\n"
_NOT_IN_ALT_TEXT = re.compile(r"[\[\]()\\\n]")
_MAX_TITLE_LENGTH = 200


class ChatServing(GenerationServing):
    """Creates chat completions."""

    def add_routes(self, app: FastAPI) -> None:
        """Add the route of the chat API to an application."""
        app.add_api_route(
            "/v1/chat/completions",
            self.create_chat_completion,
            methods=["POST"],
            responses=describe_response("StoryChat", stream=True),
            openapi_extra=describe_body(ChatRequest),
        )

    async def create_chat_completion(self, request: Request) -> Response:
        """Start a request; answer with its stream, or with the message when it has ended."""
        body = await self.read_body(request)
        api_request = await parse_body(body, ChatRequest)
        run = await self.open(await self._parse(api_request), request, body)
        if api_request.stream:
            with_usage = bool(
                api_request.stream_options and api_request.stream_options.include_usage
            )
            return await self.stream(run, _chunks(run, with_usage))
        await self.wait_ended(run, request)
        await self.load_images(run)
        return Response(_completion(run).model_dump_json(exclude_unset=True), media_type=JSON)

    async def _parse(self, request: ChatRequest) -> ParsedRequest:
        options = request.interleave or RequestOptions()
        if request.seed is not None and options.seed is None:
            options = options.model_copy(update={"seed": request.seed})
        generation = await self.parser.parse(request.turns(), request.model, options, "messages")
        fields = {
            "created_at": int(time.time()),
            "model": request.model or DEFAULT_MODEL,
            "background": False,
            "metadata": request.metadata or {},
        }
        return ParsedRequest(generation, fields)


def _completion(run: GenerationRun) -> ChatCompletion:
    """The message of a run that has ended."""
    builder = ResponseBuilder(run.request)
    parts = [part for event in run.events for part in _markdown(builder, event)]
    message = ChatCompletionMessage(role="assistant", content="".join(parts).strip())
    choice = chat_completion.Choice(index=0, message=message, finish_reason=_finish_reason(builder))
    return ChatCompletion(
        id=_id(run.request),
        object="chat.completion",
        created=_created(run.request),
        model=run.request.fields["model"],
        choices=[choice],
        usage=_usage(builder),
        interleave=builder.interleave(),
    )


async def _chunks(run: GenerationRun, with_usage: bool) -> AsyncIterator[bytes]:
    """The message in parts, as they are generated; an error is the last one."""
    request, builder = run.request, ResponseBuilder(run.request)
    yield _encode(_chunk(request, {"role": "assistant", "content": ""}))
    async for event in run.follow():
        for part in _markdown(builder, event):
            yield _encode(_chunk(request, {"content": part}))
    if failure := run.failure():
        yield _encode({"error": failure.error})
        return
    finish = _finish_reason(builder)
    yield _encode(_chunk(request, {}, finish, interleave=builder.interleave()))
    if with_usage:
        usage = _usage(builder)
        yield _encode(_chunk(request, None, usage=usage.model_dump() if usage else None))
    yield _DONE


def _markdown(builder: ResponseBuilder, event: RunEvent) -> Iterator[str]:
    """What the next event adds to the message."""
    builder.note(event)
    match event:
        case StepStarted():
            yield f"{_step_text(builder.state.steps[-1])}\n\n"
        case StepAccepted(chosen=chosen) | StepExhausted(chosen=chosen):
            if chosen:
                image = chosen.draw.image
                data = base64.b64encode(image.data).decode()
                title = _title(builder.state.steps[-1])
                yield f"![{title}](data:{image.mime};base64,{data})\n\n"


def _step_text(step: StepState) -> str:
    title = f"**{_title(step)}**"
    return f"{title}\n\n{step.text}" if step.text else title


def _title(step: StepState) -> str:
    title = " ".join(_NOT_IN_ALT_TEXT.sub(" ", step.step.step_name).split())
    return title[:_MAX_TITLE_LENGTH] or "Picture"


def _chunk(
    request: RequestEcho, delta: Json | None, finish: FinishReason | None = None, **more: object
) -> Json:

    choices = []
    if delta is not None:
        content = chat_completion_chunk.ChoiceDelta(**delta)
        choice = chat_completion_chunk.Choice(index=0, delta=content, finish_reason=finish)
        choices.append(choice)
    chunk = ChatCompletionChunk(
        id=_id(request),
        object="chat.completion.chunk",
        created=_created(request),
        model=request.fields["model"],
        choices=choices,
    )
    return chunk.model_dump(mode="json", exclude_unset=True) | more


def _encode(payload: Json) -> bytes:
    """A server-sent event without a name."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def _id(request: RequestEcho) -> str:
    return f"chatcmpl-{request.generation_id}"


def _created(request: RequestEcho) -> int:
    return int(request.fields["created_at"])


def _finish_reason(builder: ResponseBuilder) -> FinishReason:
    """`length`: it stopped before its last step."""
    return "length" if builder.status in ("stopped", "cancelled") else "stop"


def _usage(builder: ResponseBuilder) -> CompletionUsage | None:

    usage = builder.response().usage
    if usage is None:
        return None
    return CompletionUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
    )
