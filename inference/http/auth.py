"""API keys: who may call a server, and which caller a request comes from."""

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..roles import BackendError
from .errors import APIError, bad_request

_OWNER_DIGITS = 16  # of the hash of a key
_BEARER = b"Bearer "
_READING = ("GET", "HEAD", "OPTIONS")


class Keys:
    """API keys that a server accepts; without any, callers need none."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._owners = {
            _digest(_BEARER + key.encode()): _digest(f"owner:{key}".encode()).hex()[:_OWNER_DIGITS]
            for key in keys
        }

    @property
    def required(self) -> bool:
        return bool(self._owners)

    @property
    def several(self) -> bool:
        return len(self._owners) > 1

    def owner(self, authorization: bytes) -> str | None:
        """Id of the caller with that header, the same for the same key; None: the key is wrong.

        Empty where no key is required. Takes the same time whichever key matches, or none.
        """
        if not self.required:
            return ""
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() == _BEARER.strip().lower():
            authorization = _BEARER + key
        elif scheme.lower() == b"basic":  # of a URL `http://any:KEY@host`
            with suppress(ValueError):
                authorization = _BEARER + base64.b64decode(key).partition(b":")[2]
        digest, owner = _digest(authorization), None
        for expected, candidate in self._owners.items():
            if hmac.compare_digest(digest, expected):
                owner = candidate
        return owner


def load_keys(host: str, variable: str) -> Keys:
    """The keys in an environment variable, separated by commas.

    Raises:
        BackendError: the server would listen beyond this machine without a key.
    """
    keys = Keys(key for key in map(str.strip, os.environ.get(variable, "").split(",")) if key)
    if not keys.required and not is_loopback(host):
        raise BackendError(
            f"{host} can be reached from other machines: set {variable} to a key that callers "
            "must send, or listen on 127.0.0.1"
        )
    return keys


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    with suppress(ValueError):  # a name
        return ip_address(host).is_loopback
    return host == "localhost"


def is_health_path(path: str) -> bool:
    """Paths for load balancers, which say whether a server is alive and ready."""
    return path in ("/health", "/ready")


@dataclass
class AuthMiddleware:
    """Rejects requests without a valid key or with several hosts, changes by pages of other
    origins, and bodies that are too large.

    Sets `scope["state"]["owner"]` to the id of the caller, see `Keys.owner`.

    Args:
        is_public: paths that need no key.
        local_only: without keys, take only requests whose host is this machine; a page of another
            site in a browser on this machine cannot send one (DNS rebinding).
        origins: other origins whose pages may change something, as `https://example.com`.
    """

    app: ASGIApp
    keys: Keys
    max_bytes: int
    is_public: Callable[[str], bool] = is_health_path
    local_only: bool = False
    origins: Collection[str] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        try:
            scope.setdefault("state", {})["owner"] = self._owner(scope)
        except APIError as error:
            return await error.response()(scope, receive, send)
        bounded = self._bounded(scope, receive) if scope["type"] == "http" else receive
        await self.app(scope, bounded, send)

    def _owner(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise bad_request("a request has one header Host")
        host = _without_port(hosts[0])
        if self.local_only and not self.keys.required and not is_loopback(host):
            message = "this server answers requests to localhost only"
            raise APIError(HTTPStatus.MISDIRECTED_REQUEST, message)
        # Browsers let any page open a WebSocket, which has no method.
        if scope.get("method") not in _READING and self._is_foreign(headers):
            message = (
                "a page of another origin sent this request: it may if the setting cors_origins "
                "has its origin"
            )
            raise APIError(HTTPStatus.FORBIDDEN, message, "foreign_origin")
        owner = self.keys.owner(headers.get("authorization", "").encode("latin-1"))
        if owner is None and not self.is_public(scope["path"]):
            message = "the API key is missing or wrong"
            raise APIError(HTTPStatus.UNAUTHORIZED, message, "invalid_api_key")
        return owner or ""

    def _is_foreign(self, headers: Headers) -> bool:
        """Whether a browser sends the request for a page of another origin."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin in self.origins:
            return False
        if site is not None:  # true behind a proxy, too, which may change Host
            return site not in ("same-origin", "none")
        # Older browsers, and those of a server without TLS; other clients send no Origin.
        return origin is not None and origin.partition("://")[2] != headers["host"]

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Refuses a body as soon as it is known to be too large; the server reads its rest."""
        size, declared = 0, Headers(scope=scope).get("content-length", "")

        async def bounded() -> Message:
            nonlocal size
            too_large = declared.isdecimal() and int(declared) > self.max_bytes
            message = {} if too_large else await receive()
            size += len(message.get("body", b""))
            if too_large or size > self.max_bytes:
                reason = f"the request is larger than {self.max_bytes} bytes"
                status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                raise APIError(status, reason, "request_too_large")
            return message

        return bounded


def _digest(secret: bytes) -> bytes:
    """All of one length, so that comparisons do not leak the length of a key."""
    return hashlib.sha256(secret).digest()


def _without_port(host: str) -> str:
    """`[::1]:80` -> `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host
