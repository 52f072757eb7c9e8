"""What the endpoints of both APIs do with a request: read it, open it, stream its events."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus

from fastapi import Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.types import Message, Receive, Scope, Send

from schemas import BadImageError
from warehouse import EncodedImage

from ..events import ImageGenerated
from ..generation.requests import GenerationRequest
from ..http.body_reader import BodyReader, parse_json
from ..http.errors import APIError, Model, bad_request
from ..http.server import run_while_connected
from .request_manager import RequestManager
from .request_parsing import Json, RequestParser
from .run import GenerationRun
from .settings import ServiceSettings

JSON = "application/json"
_MAX_KEY_LENGTH = 255
_THREAD_BYTES = 200_000  # larger bodies are parsed in a thread

# By default streams are cut as soon as SIGTERM arrives; here every request ends its own stream
# within the grace period (see `RequestManager.close`).
AppStatus.disable_automatic_graceful_drain()


@dataclass(frozen=True)
class GenerationServing:
    """The base of both APIs' endpoints."""

    manager: RequestManager
    parser: RequestParser
    bodies: BodyReader

    async def read(self, request: Request, model: type[Model]) -> tuple[Model, bytes]:
        """A request and its body, if the queue is not full.

        Raises:
            APIError: it is full, or the body is too large, too slow, no JSON or not of the
                model's form.
            ClientDisconnect: the client disconnected.
        """
        # With a key, the response may be stored already.
        if not request.headers.get("idempotency-key"):
            self.manager.queue.check(owner_of(request))
        body = await self.bodies.read_json(request)
        if len(body) > _THREAD_BYTES:
            return await asyncio.to_thread(parse_json, body, model), body
        return parse_json(body, model), body

    async def open(
        self, request: Request, body: bytes, generation: GenerationRequest, fields: Json
    ) -> GenerationRun:
        """See `RequestManager.open`."""
        key = request.headers.get("idempotency-key") or None
        if key and len(key) > _MAX_KEY_LENGTH:
            raise bad_request(f"the Idempotency-Key has more than {_MAX_KEY_LENGTH} characters")
        body_hash = await asyncio.to_thread(_hash, request.url.path, body) if key else ""
        generation = replace(generation, key=key)
        return await self.manager.open(generation, fields, owner_of(request), body_hash)

    async def stream(self, run: GenerationRun, chunks: AsyncIterator[bytes]) -> Response:
        """A stream of server-sent events, which keeps the run alive while it is read.

        Raises:
            APIError: an image of a stored generation is missing.
        """
        await self.load_images(run)
        return EventStream(chunks, run, self.manager.settings)

    async def wait_ended(self, run: GenerationRun, request: Request) -> None:
        """Return when a run has ended with a sequence.

        Raises:
            APIError: it ended with an error.
            ClientDisconnect: the client disconnected before.
        """
        with run.followed():
            await run_while_connected(request, run.wait_ended())
        if failure := run.failure():
            raise failure

    async def load_images(self, run: GenerationRun) -> None:
        """Read all images of a stored generation, which are read when first used otherwise.

        Raises:
            APIError: one is missing.
        """
        images = [event.image for event in run.events if isinstance(event, ImageGenerated)]
        with missing_images_are_gone():
            await asyncio.to_thread(read_images, images)


class EventStream(EventSourceResponse):
    """A stream of server-sent events.

    Args:
        chunks: encoded events; closed as soon as the client disconnects.
        run: followed while the client listens.
    """

    def __init__(
        self, chunks: AsyncIterator[bytes], run: GenerationRun, settings: ServiceSettings
    ) -> None:
        super().__init__(
            chunks,
            media_type="text/event-stream; charset=utf-8",
            ping=settings.ping_seconds,
            ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
        )
        self._run, self._stalled_seconds = run, settings.stalled_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # `send_timeout` of the base class does not cover the last message of a stream.
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._stalled_seconds):
                await send(message)

        with (
            self._run.followed(),
            suppress(OSError, TimeoutError),
        ):  # the client has gone, or stalled
            await super().__call__(scope, receive, send_in_time)


def read_images(images: Iterable[EncodedImage]) -> None:
    """Read images of stored events.

    Raises:
        BadImageError: one is missing or damaged.
    """
    for image in images:
        _ = image.data


def owner_of(request: Request) -> str:
    """Id of the request's API key; empty where none is needed."""
    return str(request.state.owner)


@contextmanager
def missing_images_are_gone() -> Iterator[None]:
    """Answer with status 410 where an image of a stored generation is missing."""
    try:
        yield
    except BadImageError:
        raise APIError(HTTPStatus.GONE, "an image of this response is missing") from None


def _hash(path: str, body: bytes) -> str:
    return hashlib.sha256(path.encode() + b"\n" + body).hexdigest()
