"""Around every HTTP request: an id, a bound on how many are open, a count and a line of log."""

import re
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..http.errors import APIError
from .logs import REQUEST_ID, log_event

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_SOON_SECONDS = 5
_GONE = 499  # nginx's word for a client that went away before there was an answer

# Hears of an answer: path of the route, method, status.
Count = Callable[[str, str, int], object]


class ConnectionCounter:
    """How many HTTP requests are open."""

    def __init__(self, most: int) -> None:
        self.most, self.open = most, 0


class RequestContextMiddleware:
    """The outermost part of the service."""

    def __init__(self, app: ASGIApp, crowd: ConnectionCounter, count: Count) -> None:
        self._app, self._crowd, self._count = app, crowd, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request_id, begun, status = _request_id(Headers(scope=scope)), monotonic(), _GONE
        token = REQUEST_ID.set(request_id)

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        self._crowd.open += 1
        try:
            await self._let_in(scope, receive, marked)
        finally:
            self._crowd.open -= 1
            path = _route(scope)
            self._count(path, scope["method"], status)
            seconds = round(monotonic() - begun, 4)
            log_event("request", method=scope["method"], path=path, status=status, seconds=seconds)
            REQUEST_ID.reset(token)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._crowd.open <= self._crowd.most:
            return await self._app(scope, receive, send)
        message = f"{self._crowd.most} requests are open already; try again"
        status = HTTPStatus.TOO_MANY_REQUESTS
        refusal = APIError(status, message, "too_many_connections", retry_after=_SOON_SECONDS)
        await refusal.response()(scope, receive, send)


def _request_id(headers: Headers) -> str:
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else f"req_{uuid4().hex}"


def _route(scope: Scope) -> str:
    """The path as it was declared: without ids, and one for all that are not there."""
    return getattr(scope.get("route"), "path", "other")
