"""What the endpoints of both APIs do with a request: read it, open it, stream its events."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Literal

from fastapi import Request, Response
from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.types import Message, Receive, Scope, Send

from schemas import BadImageError
from warehouse import EncodedImage

from ..events import LazyImage
from ..generation.requests import GenerationRequest
from ..generation.runner import PlanCheck
from ..http.body_reader import BodyReader
from ..http.errors import APIError, Model, bad_request
from ..http.server import run_while_connected
from .request_manager import RequestManager
from .request_models import Json
from .request_parsing import DEFAULT_MODEL, RequestParser
from .response_builder import ResponseBuilder
from .run import GenerationRun
from .settings import ServiceSettings

JSON = "application/json"

Order = Literal["asc", "desc"]

SANDBOX_HEADERS = {"Content-Security-Policy": "sandbox"}
"""Of files: opened in place, they must not run as a page of this origin."""

_MAX_KEY_LENGTH = 255

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
            APIError: it is full, or the body cannot be read or has another form.
            ClientDisconnect: the client disconnected.
        """
        self.check_room(request)
        return await self.bodies.read_json(request, model)

    def check_room(self, request: Request) -> None:
        """Raise APIError if the queue is full, before the body is read."""
        # With a key, the response may be stored already.
        if not request.headers.get("idempotency-key"):
            self.manager.queue.check(owner_of(request))

    async def open(
        self,
        request: Request,
        body: bytes,
        generation: GenerationRequest,
        model: str | None,
        check_plan: PlanCheck,
        **fields: object,
    ) -> GenerationRun:
        """See `RequestManager.open`; `fields`: those of `GenerationRun.fields` that are set."""
        key = request.headers.get("idempotency-key") or None
        if key and len(key) > _MAX_KEY_LENGTH:
            raise bad_request(f"the Idempotency-Key has more than {_MAX_KEY_LENGTH} characters")
        body_hash = await asyncio.to_thread(_hash, request.url.path, body) if key else ""
        common = {"created_at": int(time.time()), "model": model or DEFAULT_MODEL}
        defaults = {"background": False, "metadata": {}, "store": True}
        run = GenerationRun(
            owner_of(request),
            replace(generation, key=key),
            common | defaults | fields,
            body_hash,
            check_plan,
        )
        return await self.manager.open(run)

    async def stream(self, run: GenerationRun, chunks: AsyncIterator[bytes]) -> Response:
        """A stream of server-sent events, which keeps the run alive while it is read."""
        await load_images(run.generated_images)
        return EventStream(chunks, run, self.manager.settings)

    async def wait_ended(self, run: GenerationRun, request: Request) -> None:
        """Return when a run has ended with a sequence.

        Raises:
            APIError: it ended with an error.
            ClientDisconnect: the client disconnected before.
        """
        with run.followed():
            await run_while_connected(request, run.wait_ended())
        if failure := ResponseBuilder.replay(run).failure():
            raise failure


class EventStream(EventSourceResponse):
    """A stream of encoded events; the client follows the run while it listens."""

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

        # An error: the client has gone, or stalled.
        with self._run.followed(), suppress(OSError, TimeoutError):
            await super().__call__(scope, receive, send_in_time)


async def load_images(images: Iterable[EncodedImage]) -> None:
    """Read images of a stored generation, which are read when first used otherwise.

    Raises:
        APIError: one is missing or damaged (410).
    """
    stored = [image for image in images if isinstance(image, LazyImage)]
    if not stored:  # the threads may all be busy
        return
    try:
        await asyncio.to_thread(lambda: [image.data for image in stored])
    except BadImageError:
        raise APIError(HTTPStatus.GONE, "an image of this response is missing") from None


class Page(BaseModel):
    """A page of a list."""

    object: Literal["list"] = "list"
    data: list[Json]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(BaseModel):
    """What was deleted."""

    id: str
    object: Literal["response", "file"]
    deleted: Literal[True] = True


def page_of(items: list[Json], after: str | None, limit: int, kind: str) -> Page:
    """A page of a list of OpenAI's; APIError: there is no item with the id `after`."""
    if after is not None:
        ids = [item["id"] for item in items]
        if after not in ids:
            raise bad_request(f"there is no {kind} {after}", "after")
        items = items[ids.index(after) + 1 :]
    page = items[:limit]
    ids = [item["id"] for item in page] or [None]
    return Page(data=page, first_id=ids[0], last_id=ids[-1], has_more=len(items) > limit)


def owner_of(request: Request) -> str:
    """Id of the request's API key; empty where none is needed."""
    return str(request.state.owner)


def _hash(path: str, body: bytes) -> str:
    return hashlib.sha256(path.encode() + b"\n" + body).hexdigest()
