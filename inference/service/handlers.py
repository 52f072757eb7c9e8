"""What the API's endpoints do: read, have told, answer."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic import BaseModel

from schemas import BadImageError
from warehouse import Home

from ..http.body_reader import BodyReader, parse_json
from ..http.disconnect import run_while_connected
from ..http.errors import APIError, bad_request
from ..settings import LoopSettings
from .chat import serving
from .chat.protocol import ChatRequest
from .error_mapping import ending_of, problem_of
from .lifecycle import RunEvent
from .request_manager import RequestManager
from .request_parsing import ParsedRequest, RequestParser
from .response_store import StoredResponse
from .responses.image_outputs import encoded, pictures_of
from .responses.protocol import ResponsesRequest
from .responses.response_builder import RequestEcho, as_json
from .responses.streaming_events import ResponseEventBuilder
from .run import GenerationRun
from .settings import ServiceSettings
from .sse import EventStream, encode_response_events, iterate

Json = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)

_LONGEST_KEY = 255
_AT_ONCE_BYTES = 200_000  # a larger body is read beside the event loop
_JSON = "application/json"


class Handlers:
    """The endpoints that tell stories."""

    def __init__(
        self, home: Home, desk: RequestManager, usual: LoopSettings, settings: ServiceSettings
    ) -> None:
        self._home, self._desk, self._settings = home, desk, settings
        self._reader = RequestParser(home, usual, settings.limits)
        self._bodies = BodyReader(settings.limits.bodies, settings.limits.read_seconds)

    async def create(self, request: Request) -> Response:
        """`POST /v1/responses`."""
        body = await self._body(request)
        asked = await _parsed(body, ResponsesRequest)
        find = partial(self._desk.response, owner=owner_of(request))
        wish = await self._reader.of_responses(asked, find, int(time.time()))
        found = await self._open(wish, request, body)
        if asked.stream:
            return await self._stream(found)
        if not wish.background:
            await self._over(found, request)
        return await self._response(found)

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        body = await self._body(request)
        asked = await _parsed(body, ChatRequest)
        wish = await self._reader.of_chat(asked, int(time.time()))
        found = await self._open(wish, request, body)
        if asked.stream:
            with_usage = bool(asked.stream_options and asked.stream_options.include_usage)
            events = await self._follow(found)
            return self._sent(found, serving.chunks(_asked(found), events, with_usage))
        await self._over(found, request)
        events_of_all = (
            found.events if isinstance(found, GenerationRun) else await self._retold(found)
        )
        message = await asyncio.to_thread(serving.completion, _asked(found), events_of_all)
        return Response(message.model_dump_json(exclude_unset=True), media_type=_JSON)

    async def retrieve(
        self, request: Request, response_id: str, stream: bool, starting_after: int
    ) -> Response:
        """`GET /v1/responses/{id}`."""
        found = await self._found(request, response_id)
        if stream:
            return await self._stream(found, starting_after)
        return await self._response(found)

    async def cancel(self, request: Request, response_id: str) -> Response:
        """`POST /v1/responses/{id}/cancel`."""
        await self._desk.cancel(response_id, owner_of(request))
        return await self.retrieve(request, response_id, stream=False, starting_after=-1)

    async def delete(self, request: Request, response_id: str) -> Json:
        """`DELETE /v1/responses/{id}`."""
        if not await self._desk.delete(response_id, owner_of(request)):
            raise _unknown(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def _body(self, request: Request) -> bytes:
        if not request.headers.get("idempotency-key"):  # what was told before needs no place
            self._desk.queue.check(owner_of(request))
        return await self._bodies.read_json(request)

    async def _open(
        self, wish: ParsedRequest, request: Request, body: bytes
    ) -> "GenerationRun | StoredResponse":
        key = request.headers.get("idempotency-key") or None
        if key and len(key) > _LONGEST_KEY:
            raise bad_request(f"the Idempotency-Key has more than {_LONGEST_KEY} characters")
        digest = await asyncio.to_thread(_digest, request.url.path, body) if key else ""
        return await self._desk.open(wish, owner_of(request), key, digest)

    async def _found(self, request: Request, response_id: str) -> "GenerationRun | StoredResponse":
        owner = owner_of(request)
        if run := self._desk.run(response_id, owner):
            return run
        kept = await asyncio.to_thread(self._desk.kept, response_id, owner)
        if kept is None:
            raise _unknown(response_id)
        return kept

    async def _stream(self, found: "GenerationRun | StoredResponse", after: int = -1) -> Response:
        events = await self._follow(found)
        return self._sent(
            found, encode_response_events(events, ResponseEventBuilder(_asked(found)), after)
        )

    def _sent(
        self, found: "GenerationRun | StoredResponse", chunks: AsyncIterator[bytes]
    ) -> Response:
        attended = found.attended() if isinstance(found, GenerationRun) else nullcontext()
        ping, stalled = self._settings.ping_seconds, self._settings.stalled_seconds
        return EventStream(chunks, attended, ping, stalled)

    async def _follow(self, found: "GenerationRun | StoredResponse") -> AsyncIterator[RunEvent]:
        if isinstance(found, GenerationRun):
            return found.follow()
        return iterate(await self._retold(found))

    async def _retold(self, kept: StoredResponse) -> list[RunEvent]:
        with _pictures_needed():
            return await asyncio.to_thread(lambda: list(self._desk.retold(kept)))

    async def _over(self, found: "GenerationRun | StoredResponse", request: Request) -> None:
        """Wait for the end, which is a story.

        Raises:
            Refusal: it is not.
            ClientDisconnect: the client went away before.
        """
        if isinstance(found, GenerationRun):
            with found.attended():
                ending = await run_while_connected(request, found.over())
            reason = found.answer().reason
        else:
            ending, reason = ending_of(found.response), found.response["interleave"]["error"]
        if problem := problem_of(ending, reason):
            raise problem

    async def _response(self, found: "GenerationRun | StoredResponse") -> Response:
        if isinstance(found, GenerationRun):
            answer = found.answer()
            response, pictures = as_json(answer), answer.pictures()
        else:
            with _pictures_needed():
                response = found.response
                pictures = await asyncio.to_thread(pictures_of, response, self._home)
        return Response(await encoded(response, pictures), media_type=_JSON)


def owner_of(request: Request) -> str:
    """Who asks, as the doorkeeper knows them."""
    return str(request.state.owner)


def _asked(found: "GenerationRun | StoredResponse") -> RequestEcho:
    return found.asked if isinstance(found, GenerationRun) else RequestEcho.of(found.response)


async def _parsed(body: bytes, model: type[Model]) -> Model:
    if len(body) > _AT_ONCE_BYTES:
        return await asyncio.to_thread(parse_json, body, model)
    return parse_json(body, model)


@contextmanager
def _pictures_needed() -> Iterator[None]:
    try:
        yield
    except BadImageError:
        raise APIError(HTTPStatus.GONE, "its pictures are not there any more") from None


def _digest(path: str, body: bytes) -> str:
    return hashlib.sha256(path.encode() + b"\n" + body).hexdigest()


def _unknown(response_id: str) -> APIError:
    return APIError(
        HTTPStatus.NOT_FOUND, f"there is no response {response_id}", "not_found", "response_id"
    )
