"""The bodies of requests: read in time, within a bound for all of them, and as strict JSON."""

import asyncio
from http import HTTPStatus
from typing import TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError

from ..service.settings import RequestLimits
from .errors import APIError, bad_request

Model = TypeVar("Model", bound=BaseModel)

_SOON_SECONDS = 2


class Bodies:
    """What is being read; one a server.

    Who sends slowly takes up no more than what has come, and that for a bounded time.
    """

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._held = 0

    async def read(self, request: Request) -> bytes:
        """A body of JSON.

        Raises:
            Refusal: it is of another kind, takes too long, or there are too many others.
            ClientDisconnect: the client went away.
        """
        if not request.headers.get("content-type", "").lower().startswith("application/json"):
            raise bad_request("send JSON, as Content-Type: application/json")
        try:
            async with asyncio.timeout(self._limits.read_seconds):
                return await self._read(request)
        except TimeoutError:
            message = "the request took too long to come"
            raise APIError(HTTPStatus.REQUEST_TIMEOUT, message, retry=False) from None

    async def _read(self, request: Request) -> bytes:
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                self._held += len(chunk)
                self._check_room()
            return b"".join(chunks)
        finally:
            self._held -= size

    def _check_room(self) -> None:
        if self._held > self._limits.bodies:
            raise APIError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too many large requests are coming in; try again",
                "queue_full",
                retry_after=_SOON_SECONDS,
            )


def parsed(body: bytes, model: type[Model]) -> Model:
    """A body as a request.

    Raises:
        Refusal: it is not JSON as the standard has it, or of another form.
    """
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _problem(error) from None


def _problem(error: ValidationError) -> APIError:
    """The first problem, by the name that the sender gave."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name = ".".join(map(str, first["loc"])) or None
    if first["type"] == "extra_forbidden":
        return bad_request(f"no field is called {name} here", name, "unknown_parameter")
    if first["type"] == "missing":
        return bad_request(f"{name} is missing", name, "missing_required_parameter")
    message = first["msg"].removeprefix("Value error, ")
    return bad_request(f"{name}: {message}" if name else message, name, "invalid_value")
