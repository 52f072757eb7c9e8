"""A story as the message of a chat: words in Markdown, pictures in it as data URIs."""

import base64
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from ...events import StepAccepted, StepExhausted, StepStarted
from ...generation.generation_state import StepState
from ...http.errors import APIError
from ..error_mapping import problem_of
from ..lifecycle import Ending, RunEvent
from ..responses.response_builder import RequestEcho, ResponseBuilder
from ..sse import encode_event

if TYPE_CHECKING:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion

Json = dict[str, Any]
Finish = Literal["stop", "length"]

_DONE = b"data: [DONE]\n\n"
_NOT_IN_NAMES = re.compile(r"[\[\]()\\\n]")


def completion(asked: RequestEcho, events: Iterable[RunEvent]) -> "ChatCompletion":
    """The whole message."""
    from openai.types.chat import ChatCompletion, ChatCompletionMessage
    from openai.types.chat.chat_completion import Choice

    answer = ResponseBuilder(asked)
    pieces = [piece for event in events for piece in _pieces(answer, event)]
    message = ChatCompletionMessage(role="assistant", content="".join(pieces).strip())
    return ChatCompletion(
        id=_id(asked),
        object="chat.completion",
        created=_created(asked),
        model=asked.echoed["model"],
        choices=[Choice(index=0, message=message, finish_reason=_finish(answer))],
        usage=_usage(answer),
        interleave=answer.record(),
    )


async def chunks(
    asked: RequestEcho, events: AsyncIterator[RunEvent], with_usage: bool
) -> AsyncIterator[bytes]:
    """The message in parts, as the story is told; an error, if it cannot be, ends it."""
    answer = ResponseBuilder(asked)
    yield encode_event(_chunk(asked, {"role": "assistant", "content": ""}))
    async for event in events:
        for piece in _pieces(answer, event):
            yield encode_event(_chunk(asked, {"content": piece}))
        if isinstance(event, Ending) and (problem := problem_of(event, answer.reason)):
            yield _broken(problem)
            return
    yield encode_event(_chunk(asked, {}, _finish(answer), interleave=answer.record()))
    if with_usage:
        usage = _usage(answer)
        yield encode_event(_chunk(asked, None, usage=usage.model_dump() if usage else None))
    yield _DONE


def _pieces(answer: ResponseBuilder, event: RunEvent) -> Iterator[str]:
    """What the next event adds to the message."""
    answer.note(event)
    match event:
        case StepStarted():
            yield f"{_words(answer.story.steps[-1])}\n\n"
        case StepAccepted(chosen=chosen) | StepExhausted(chosen=chosen):
            if chosen:
                told = answer.story.steps[-1]
                picture = base64.b64encode(chosen.draw.image.data).decode()
                mime = chosen.draw.image.mime
                yield f"![{_name(told)}](data:{mime};base64,{picture})\n\n"


def _words(told: StepState) -> str:
    title = f"**{_name(told)}**"
    return f"{title}\n\n{told.words}" if told.words else title


def _name(told: StepState) -> str:
    return " ".join(_NOT_IN_NAMES.sub(" ", told.step.step_name).split())[:200] or "Picture"


def _chunk(
    asked: RequestEcho, delta: Json | None, finish: Finish | None = None, **more: object
) -> Json:
    from openai.types.chat import ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta

    choices = (
        [] if delta is None else [Choice(index=0, delta=ChoiceDelta(**delta), finish_reason=finish)]
    )
    chunk = ChatCompletionChunk(
        id=_id(asked),
        object="chat.completion.chunk",
        created=_created(asked),
        model=asked.echoed["model"],
        choices=choices,
    )
    return chunk.model_dump(mode="json", exclude_unset=True) | more


def _broken(problem: APIError) -> bytes:
    return encode_event({"error": problem.error})


def _id(asked: RequestEcho) -> str:
    return f"chatcmpl-{asked.generation_id}"


def _created(asked: RequestEcho) -> int:
    return int(asked.echoed["created_at"])


def _finish(answer: ResponseBuilder) -> Finish:
    """`length`: it stopped where a step's pictures had all been refused."""
    return "length" if answer.status in ("stopped", "cancelled") else "stop"


def _usage(answer: ResponseBuilder) -> "CompletionUsage | None":
    from openai.types import CompletionUsage

    usage = answer.response().usage
    if usage is None:
        return None
    return CompletionUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
    )
