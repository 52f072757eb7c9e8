"""Server-sent events, as long as somebody reads them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, aclosing, suppress

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .lifecycle import RunEvent
from .responses.image_outputs import encoded
from .responses.streaming_events import ResponseEventBuilder, StreamEvent

PING = b": still here\n\n"
_MEDIA_TYPE = "text/event-stream; charset=utf-8"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(Response):
    """An answer that goes on.

    Args:
        chunks: what is sent, as it comes; left as soon as the client is gone.
        attended: held while the client listens.
        stalled_seconds: a client that takes nothing for so long counts as gone.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        attended: AbstractContextManager[object],
        stalled_seconds: float,
    ) -> None:
        super().__init__(media_type=_MEDIA_TYPE, headers=_HEADERS)
        del self.headers["content-length"]
        self._chunks, self._attended, self._stalled = chunks, attended, stalled_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end or until the client leaves."""
        with self._attended:
            sending = asyncio.create_task(self._send(send))
            leaving = asyncio.create_task(wait_disconnect(receive))
            try:
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
            finally:
                sending.cancel()
                leaving.cancel()
                await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        with suppress(OSError, TimeoutError):  # the client is gone, or as good as that
            await send(start)
            async with aclosing(self._chunks) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    await self._send_part(send, chunk, more=True)
            await self._send_part(send, b"", more=False)

    async def _send_part(self, send: Send, chunk: bytes, more: bool) -> None:
        async with asyncio.timeout(self._stalled):
            await send({"type": "http.response.body", "body": chunk, "more_body": more})


async def wait_disconnect(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def narrated(
    events: AsyncIterator[RunEvent | None], narrator: ResponseEventBuilder, after: int = -1
) -> AsyncIterator[bytes]:
    """A request's events as clients of the Responses API read them.

    Args:
        after: number of the last one that the client has.
    """
    yield await _chunk(narrator.opening(), after)
    async for event in events:
        yield PING if event is None else await _chunk(narrator.notices(event), after)


async def at_once(events: Iterable[RunEvent]) -> AsyncIterator[RunEvent]:
    """Events that are all there already."""
    for event in events:
        yield event


async def _chunk(notices: Iterable[StreamEvent], after: int) -> bytes:
    return b"".join([await _sent(notice) for notice in notices if notice.number > after])


async def _sent(notice: StreamEvent) -> bytes:
    data = await encoded(notice.payload, notice.pictures)
    return b"event: " + notice.type.encode() + b"\ndata: " + data + b"\n\n"


def data(payload: object) -> bytes:
    """An event without a name, as chats have them."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"
