"""Reads request bodies in time, within a bound for all of them, as JSON or as a form."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from types import ModuleType
from typing import NamedTuple

import orjson
from anyio import CapacityLimiter, to_process
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from schemas import BadImageError
from warehouse.images import ImageTooLargeError, TooManyChunksError, check_upload

from .errors import APIError, Model, bad_request, too_many_requests, validate

_RETRY_SECONDS = 2
_PROCESS_BYTES = 256 * 1024
"""Larger bodies are parsed and validated in a worker process: in a thread as well, that would hold
the interpreter's lock for so long that health checks wait."""

# anyio's workers have no main module where the server's is not a file (a notebook); DuckDB, which
# some models' modules import, cannot be imported without one.
sys.modules.setdefault("__main__", ModuleType("__main__"))


class Upload(NamedTuple):
    """A file of a form. `field`: the form's name for it."""

    field: str
    filename: str
    content: bytes


class BodyReader:
    """Reads the bodies of one server's requests.

    A slow client occupies only the bytes that have arrived, and for a limited time.

    Args:
        max_bytes: of all bodies that are being read.
        seconds: that one body may take.
    """

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self._max_bytes, self._seconds = max_bytes, seconds
        self._bytes = 0
        self._processes = CapacityLimiter(1)

    async def read_json(self, request: Request, model: type[Model]) -> tuple[Model, bytes]:
        """A request in JSON, and its body.

        Raises:
            APIError: another content type, too slow, too many bytes in all bodies, or not of the
                model's form.
            ClientDisconnect: the client disconnected.
        """
        _check_type(request, "application/json", "send JSON, as Content-Type: application/json")
        async with self._counted(request) as counted:
            body = await counted.body()
        if len(body) <= _PROCESS_BYTES:
            return parse_json(body, model), body
        parsed = await to_process.run_sync(parse_json, body, model, limiter=self._processes)
        return parsed, body

    async def read_form(
        self, request: Request, max_files: int, max_fields: int
    ) -> tuple[dict[str, str], list[Upload]]:
        """The fields of a `multipart/form-data` request, and its files in order.

        Raises as `read_json`, and an APIError if it has too many parts.
        """
        message = "send the images as files, in multipart/form-data"
        _check_type(request, "multipart/form-data", message)
        fields, files = {}, []
        try:
            async with (
                self._counted(request) as counted,
                counted.form(max_files=max_files, max_fields=max_fields) as form,
            ):
                for name, value in form.multi_items():
                    name.encode()
                    if isinstance(value, UploadFile):
                        (filename := value.filename or "").encode()
                        files.append(Upload(name, filename, await value.read()))
                    else:
                        value.encode()
                        fields[name] = value
        except HTTPException as error:
            raise bad_request(error.detail) from None
        except UnicodeEncodeError:  # decoded from utf-7, for instance
            raise bad_request("the form has text that is not Unicode; send UTF-8") from None
        return fields, files

    @asynccontextmanager
    async def _counted(self, request: Request) -> AsyncIterator[Request]:
        """The request, whose bytes count and whose time is limited."""
        size = 0

        async def receive() -> Message:
            nonlocal size
            message = await request.receive()
            received = len(message.get("body", b""))
            size += received
            self._bytes += received
            if self._bytes > self._max_bytes:
                reason = "too many large requests are being received; try again"
                raise too_many_requests(reason, "queue_full", _RETRY_SECONDS)
            return message

        try:
            async with asyncio.timeout(self._seconds):
                yield Request(request.scope, receive)
        except TimeoutError:
            message = "the request took too long to arrive"
            raise APIError(HTTPStatus.REQUEST_TIMEOUT, message, retry=False) from None
        finally:
            self._bytes -= size


def parse_json(body: bytes, model: type[Model]) -> Model:
    """A body in JSON as a request; raises APIError."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None
    return validate(content, model)


def check_image(data: bytes, param: str, max_pixels: int, decode: bool = True) -> None:
    """Check an image of a request. `decode`: also decode it, to find truncated files.

    Raises:
        APIError: it is not a PNG, JPEG or WebP image, or has more than `max_pixels` or more parts
            than images have.
    """
    try:
        check_upload(data, max_pixels, decode)
    except ImageTooLargeError as error:
        message = f"{param} has {error} pixels; at most {max_pixels} are taken"
        raise bad_request(message, param, "image_too_large") from None
    except TooManyChunksError as error:
        raise bad_request(f"{param} has {error}", param, "invalid_image") from None
    except BadImageError:
        message = f"{param} is not a PNG, JPEG or WebP image"
        raise bad_request(message, param, "invalid_image") from None


def _check_type(request: Request, media_type: str, message: str) -> None:
    if not request.headers.get("content-type", "").lower().startswith(media_type):
        raise bad_request(message)
