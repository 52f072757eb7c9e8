"""Server-sent events of a request, until it ends or its client has gone."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, suppress

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.types import Message, Receive, Scope, Send

from .lifecycle import RunEvent
from .responses.image_outputs import encoded
from .responses.streaming_events import ResponseEventBuilder, StreamEvent

# By default streams are cut as soon as SIGTERM arrives; here every request ends its own stream
# within the grace period (see `RequestManager.close`).
AppStatus.disable_automatic_graceful_drain()


class EventStream(EventSourceResponse):
    """A stream of server-sent events.

    Args:
        chunks: encoded events; closed as soon as the client disconnects.
        attended: held while the client listens.
        ping_seconds: between comments, which keep proxies from closing a quiet stream.
        stalled_seconds: a client that reads nothing for so long is disconnected.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        attended: AbstractContextManager[object],
        ping_seconds: float,
        stalled_seconds: float,
    ) -> None:
        super().__init__(
            chunks,
            media_type="text/event-stream; charset=utf-8",
            ping=ping_seconds,
            ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
        )
        self._attended, self._stalled_seconds = attended, stalled_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # `send_timeout` of the base class does not cover the last message of a stream.
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._stalled_seconds):
                await send(message)

        with self._attended, suppress(OSError, TimeoutError):  # the client has gone, or stalled
            await super().__call__(scope, receive, send_in_time)


async def encode_response_events(
    events: AsyncIterator[RunEvent], builder: ResponseEventBuilder, after: int = -1
) -> AsyncIterator[bytes]:
    """A request's events as clients of the Responses API read them.

    Args:
        after: sequence number of the last event that the client has.
    """
    yield await _encode_chunk(builder.opening(), after)
    async for event in events:
        yield await _encode_chunk(builder.notices(event), after)


async def iterate(events: Iterable[RunEvent]) -> AsyncIterator[RunEvent]:
    """The events of a request that has ended."""
    for event in events:
        yield event


def encode_event(payload: object) -> bytes:
    """An event without a name, as in chat streams."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


async def _encode_chunk(events: Iterable[StreamEvent], after: int) -> bytes:
    return b"".join([await _encode(event) for event in events if event.number > after])


async def _encode(event: StreamEvent) -> bytes:
    data = await encoded(event.payload, event.pictures)
    return b"event: " + event.type.encode() + b"\ndata: " + data + b"\n\n"
