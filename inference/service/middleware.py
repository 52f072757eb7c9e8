"""Around every HTTP request: its id, a limit on open requests, a metric and a log line."""

import re
from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..http.errors import APIError
from .monitoring import REQUEST_ID, log_event

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_RETRY_SECONDS = 5
_CLIENT_CLOSED = 499  # nginx's status where the client disconnected before there was a response

# Called with the route's path, the method and the status of every response.
Count = Callable[[str, str, int], object]


class ConnectionCounter:
    """How many HTTP requests are open, of at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit, self.open = limit, 0


class RequestContextMiddleware:
    """The outermost middleware of the service."""

    def __init__(self, app: ASGIApp, connections: ConnectionCounter, count: Count) -> None:
        self._app, self._connections, self._count = app, connections, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request_id, start, status = _request_id(Headers(scope=scope)), monotonic(), _CLIENT_CLOSED
        token = REQUEST_ID.set(request_id)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        self._connections.open += 1
        try:
            await self._call_app(scope, receive, send_with_id)
        finally:
            self._connections.open -= 1
            path = _route_path(scope)
            self._count(path, scope["method"], status)
            seconds = round(monotonic() - start, 4)
            log_event("request", method=scope["method"], path=path, status=status, seconds=seconds)
            REQUEST_ID.reset(token)

    async def _call_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._connections.limit
        if self._connections.open <= limit:
            return await self._app(scope, receive, send)
        error = APIError(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"{limit} requests are open already; try again",
            "too_many_connections",
            retry_after=_RETRY_SECONDS,
        )
        await error.response()(scope, receive, send)


def _request_id(headers: Headers) -> str:
    """The client's own id if it is well-formed, else a new one."""
    client_id = headers.get("x-request-id", "")
    return client_id if _REQUEST_ID.fullmatch(client_id) else f"req_{uuid4().hex}"


def _route_path(scope: Scope) -> str:
    """The path as declared, with placeholders instead of ids; `other` without a route."""
    return getattr(scope.get("route"), "path", "other")
