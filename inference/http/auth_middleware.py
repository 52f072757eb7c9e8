"""Before a request is looked at: is its key right, and does its body end in time."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import APIError
from .keys import Keys
from .sockets import on_loopback

_DRAIN_SECONDS = 20.0


def for_load_balancers(path: str) -> bool:
    """Paths that say whether a server is alive and ready, and nothing else."""
    return path in ("/health", "/ready")


class AuthMiddleware:
    """Turns away who has no key, and bodies that are too large.

    Whoever is let in has a name, `scope["state"]["owner"]`: see `Keys.owner`.

    Args:
        most_bytes: of a body.
        is_open: paths that need no key.
        local: without keys, take only requests that name this machine as their host; a page of
            another site in a browser on this machine cannot make one (DNS rebinding).
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        most_bytes: int,
        is_open: Callable[[str], bool] = for_load_balancers,
        local: bool = False,
    ) -> None:
        self._app, self._keys, self._most = app, keys, most_bytes
        self._is_open, self._local = is_open, local and not keys.required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            scope.setdefault("state", {})["owner"] = self._owner(scope)
        except APIError as refusal:
            return await refusal.response()(scope, receive, send)
        await self._app(scope, self._bounded(receive), send)

    def _owner(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        if self._local and not on_loopback(_without_port(headers.get("host", "localhost"))):
            raise APIError(HTTPStatus.MISDIRECTED_REQUEST, "this server is for this machine only")
        owner = self._keys.owner(headers.get("authorization", "").encode("latin-1"))
        if owner is None and not self._is_open(scope["path"]):
            raise APIError(
                HTTPStatus.UNAUTHORIZED, "the API key is missing or wrong", "invalid_api_key"
            )
        return owner or ""

    def _bounded(self, receive: Receive) -> Receive:
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                await _drain(message, receive)
                raise APIError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the request is larger than {self._most} bytes",
                    "request_too_large",
                )
            return message

        return bounded


def _without_port(host: str) -> str:
    """`[::1]:80` -> `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


async def _drain(message: Message, receive: Receive) -> None:
    """Read on to the end: who is still sending does not hear an answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while message.get("more_body", False):
                message = await receive()
