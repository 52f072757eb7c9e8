"""The endpoint of the chat API: a generation as one message.

Text is Markdown; images are data URIs in it.
"""

import re
import time
from collections.abc import AsyncIterator, Iterator

import orjson
from fastapi import FastAPI, Request, Response

from ...events import RunEvent, StepAccepted, StepExhausted, StepStarted
from ...generation.generation_state import StepState
from ...generation.requests import GenerationRequest
from ..openapi import describe_body, describe_response
from ..request_parsing import DEFAULT_MODEL, Json, RequestEcho, RequestOptions
from ..responses.response_builder import ResponseBuilder
from ..run import GenerationRun
from ..serving import JSON, GenerationServing
from .protocol import ChatRequest

_CHUNK = "chat.completion.chunk"
_DONE = b"data: [DONE]\n\n"
_NOT_IN_ALT_TEXT = re.compile(r"[\[\]()\\\n]")
_MAX_TITLE_LENGTH = 200
_USAGE_DETAILS = ("completion_tokens_details", "prompt_tokens_details")  # null in a stream


class ChatServing(GenerationServing):
    """Creates chat completions."""

    def add_routes(self, app: FastAPI) -> None:
        """Add the route of the chat API to an application."""
        described = describe_response("StoryChat", stream=True)
        body = describe_body(ChatRequest)
        app.post("/v1/chat/completions", responses=described, openapi_extra=body)(
            self.create_chat_completion
        )

    async def create_chat_completion(self, request: Request) -> Response:
        """Start a request; answer with its stream, or with the message when it has ended."""
        api_request, body = await self.read(request, ChatRequest)
        run = await self.open(request, body, *await self._parse(api_request))
        if api_request.stream:
            options = api_request.stream_options
            return await self.stream(run, _chunks(run, bool(options and options.include_usage)))
        await self.wait_ended(run, request)
        await self.load_images(run)
        return Response(orjson.dumps(_completion(run)), media_type=JSON)

    async def _parse(self, request: ChatRequest) -> tuple[GenerationRequest, Json]:
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
        return generation, fields


def _completion(run: GenerationRun) -> Json:
    """The message of a run that has ended."""
    builder = ResponseBuilder(run.request)
    parts = [part for event in run.events for part in _markdown(builder, event)]
    message = {"content": "".join(parts).strip(), "role": "assistant"}
    choice = {"finish_reason": _finish_reason(builder), "index": 0, "message": message}
    more = {"usage": _usage(builder), "interleave": builder.interleave()}
    return _payload(run.request, "chat.completion", [choice]) | more


async def _chunks(run: GenerationRun, with_usage: bool) -> AsyncIterator[bytes]:
    """The message in parts, as they are generated; an error is the last one."""
    request, builder = run.request, ResponseBuilder(run.request)
    yield _encode(_chunk(request, {"content": "", "role": "assistant"}))
    async for event in run.follow():
        for part in _markdown(builder, event):
            yield _encode(_chunk(request, {"content": part}))
    if failure := run.failure():
        yield _encode({"error": failure.error})
        return
    finish = _chunk(request, {}, _finish_reason(builder))
    yield _encode(finish | {"interleave": builder.interleave()})
    if with_usage:
        usage = _usage(builder)
        usage = usage and usage | dict.fromkeys(_USAGE_DETAILS)
        yield _encode(_payload(request, _CHUNK, []) | {"usage": usage})
    yield _DONE


def _markdown(builder: ResponseBuilder, event: RunEvent) -> Iterator[str]:
    """What the next event adds to the message."""
    builder.note(event)
    match event:
        case StepStarted():
            yield f"{_step_text(builder.state.steps[-1])}\n\n"
        case StepAccepted(chosen=chosen) | StepExhausted(chosen=chosen):
            if chosen:
                title = _title(builder.state.steps[-1])
                yield f"![{title}]({chosen.draw.image.data_url})\n\n"


def _step_text(step: StepState) -> str:
    title = f"**{_title(step)}**"
    return f"{title}\n\n{step.text}" if step.text else title


def _title(step: StepState) -> str:
    title = " ".join(_NOT_IN_ALT_TEXT.sub(" ", step.step.step_name).split())
    return title[:_MAX_TITLE_LENGTH] or "Picture"


def _chunk(request: RequestEcho, delta: Json, finish: str | None = None) -> Json:
    choice = {"delta": delta, "index": 0, "finish_reason": finish}
    return _payload(request, _CHUNK, [choice])


def _payload(request: RequestEcho, kind: str, choices: list[Json]) -> Json:
    """Fields that messages and chunks have in common, in the order of OpenAI's own classes."""
    return {
        "id": f"chatcmpl-{request.generation_id}",
        "choices": choices,
        "created": int(request.fields["created_at"]),
        "model": request.fields["model"],
        "object": kind,
    }


def _encode(payload: Json) -> bytes:
    """A server-sent event without a name."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def _finish_reason(builder: ResponseBuilder) -> str:
    """`length`: it stopped before its last step."""
    return "length" if builder.status in ("stopped", "cancelled") else "stop"


def _usage(builder: ResponseBuilder) -> Json | None:
    if (usage := builder.usage()) is None:
        return None
    return {
        "completion_tokens": usage["output_tokens"],
        "prompt_tokens": usage["input_tokens"],
        "total_tokens": usage["total_tokens"],
    }
