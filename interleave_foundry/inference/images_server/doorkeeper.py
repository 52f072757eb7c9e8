"""Before a request is looked at: is its key right, and does its body end in time."""

import asyncio
import hmac
from contextlib import suppress
from http import HTTPStatus

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import Refusal

_OPEN = {"/health", "/ready"}  # for load balancers
_DRAIN_SECONDS = 20.0


class Doorkeeper:
    """Turns away who has no key, and bodies that are too large.

    Args:
        key: None: everybody may come.
        most_bytes: of a body.
    """

    def __init__(self, app: ASGIApp, key: str | None, most_bytes: int) -> None:
        self._app, self._most = app, most_bytes
        self._expected = None if key is None else f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if not self._welcome(Request(scope)):
            refusal = Refusal(
                HTTPStatus.UNAUTHORIZED, "the API key is missing or wrong", "invalid_api_key"
            )
            return await refusal.response()(scope, receive, send)
        await self._app(scope, self._bounded(receive), send)

    def _welcome(self, request: Request) -> bool:
        if self._expected is None or request.url.path in _OPEN:
            return True
        given = request.headers.get("authorization", "").encode()
        return hmac.compare_digest(given, self._expected)

    def _bounded(self, receive: Receive) -> Receive:
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                await _drain(message, receive)
                raise Refusal(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the request is larger than {self._most} bytes",
                    "request_too_large",
                )
            return message

        return bounded


async def _drain(message: Message, receive: Receive) -> None:
    """Read on to the end: who is still sending does not hear an answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while message.get("more_body", False):
                message = await receive()
