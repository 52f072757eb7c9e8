"""Server-sent events of a request, until it ends or its client has gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, suppress

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.types import Message, Receive, Scope, Send

# By default streams are cut as soon as SIGTERM arrives; here every request ends its own stream
# within the grace period (see `RequestManager.close`).
AppStatus.disable_automatic_graceful_drain()


class EventStream(EventSourceResponse):
    """A stream of server-sent events.

    Args:
        chunks: encoded events; closed as soon as the client disconnects.
        followed: held while the client listens.
        ping_seconds: between comments, which keep proxies from closing a quiet stream.
        stalled_seconds: a client that reads nothing for so long is disconnected.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        followed: AbstractContextManager[object],
        ping_seconds: float,
        stalled_seconds: float,
    ) -> None:
        super().__init__(
            chunks,
            media_type="text/event-stream; charset=utf-8",
            ping=ping_seconds,
            ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
        )
        self._followed, self._stalled_seconds = followed, stalled_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # `send_timeout` of the base class does not cover the last message of a stream.
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._stalled_seconds):
                await send(message)

        with self._followed, suppress(OSError, TimeoutError):  # the client has gone, or stalled
            await super().__call__(scope, receive, send_in_time)


def encode_event(payload: object) -> bytes:
    """An event without a name, as in chat streams."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"
