"""Reads request bodies in time, within a bound for all of them, as JSON or as a form."""

import asyncio
import ctypes
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import NamedTuple

import orjson
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

from schemas import BadImageError
from warehouse.images import ImageTooLargeError, TooManyChunksError, check_upload

from .errors import APIError, Model, bad_request, too_many_requests, validate
from .long_base64 import Base64Cutter

MAX_VALUES = 50_000
"""Values of a JSON body: what parsing and validation may cost."""

MAX_ESCAPES = 1_000_000
"""Backslashes of a JSON body. Some clients escape the slashes of base64, every 64th character."""

MAX_TEXT_BYTES = 12 * 2**20
"""Of a JSON body with other than ASCII characters, without long base64: the parser makes up to four
times as much of it."""

_RETRY_SECONDS = 2
_THREAD_BYTES = 200_000  # larger bodies are parsed in a thread
_TRIM_SECONDS = 1.0  # after a large body
# Larger blocks are returned to the system when they are freed. Unless it is set, glibc raises this
# to the largest that was freed, and what large bodies took is not returned.
_MMAP_BYTES = 4 * 2**20
_M_MMAP_THRESHOLD = -3
_SEPARATORS = (b",", b"[", b"{")  # one before each value, but the first of a list or object


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
        self._trim: asyncio.TimerHandle | None = None
        self._parsing = asyncio.Lock()  # threads that hold the interpreter's lock in turn add up
        _call_malloc("mallopt", _M_MMAP_THRESHOLD, _MMAP_BYTES)

    async def read_json(
        self, request: Request, model: type[Model], cut_base64: bool = False
    ) -> tuple[Model, Sequence[bytes]]:
        """A request in JSON, and the parts of its body.

        Args:
            cut_base64: out of the model's strings; `long_base64` decodes them.

        Raises:
            APIError: another content type, too slow, too many bytes in all bodies, too many values
                or too much text in this one, or not of the model's form.
            ClientDisconnect: the client disconnected.
        """
        _check_type(request, "application/json", "send JSON, as Content-Type: application/json")
        body, short = list[bytes](), list[bytes]()
        cutter = Base64Cutter() if cut_base64 else None
        async with self._counted(request) as counted:
            async for part in _countable_parts(counted):
                body.append(part)
                short += cutter.shorten(part) if cutter else [part]
        size = sum(map(len, short))
        if size > MAX_TEXT_BYTES and not all(map(bytes.isascii, short)):
            raise bad_request("the body has too much text", code="string_above_max_length")
        if size <= _THREAD_BYTES:
            return _parse_json(short, model), body
        async with self._parsing:
            return await asyncio.to_thread(_parse_json, short, model), body

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
            if size > _THREAD_BYTES:
                self._trim_memory_later()

    def _trim_memory_later(self) -> None:
        """Once no large body has come for a while, and the last has been answered."""
        if self._trim:
            self._trim.cancel()
        loop = asyncio.get_running_loop()
        self._trim = loop.call_later(_TRIM_SECONDS, loop.run_in_executor, None, _trim_memory)


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


async def _countable_parts(request: Request) -> AsyncIterator[bytes]:
    """The parts of a JSON body, as long as they have no more values and escapes than the maxima.

    Counted while they arrive: whatever handles a large body at once holds the interpreter's lock,
    in a thread as well.
    """
    separators = escapes = 0
    async for part in request.stream():
        separators += sum(map(part.count, _SEPARATORS))
        if separators > MAX_VALUES:
            message = f"the body has more than {MAX_VALUES} values, or commas and brackets in texts"
            raise bad_request(message, code="too_many_values")
        escapes += part.count(b"\\")
        if escapes > MAX_ESCAPES:
            raise bad_request(
                f"the body has more than {MAX_ESCAPES} escapes", code="too_many_values"
            )
        yield part


def _parse_json(parts: Sequence[bytes], model: type[Model]) -> Model:
    try:
        content = orjson.loads(b"".join(parts))
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not valid JSON: {error}", code="invalid_json") from None
    return validate(content, model)


def _check_type(request: Request, media_type: str, message: str) -> None:
    if not request.headers.get("content-type", "").lower().startswith(media_type):
        raise bad_request(message)


def _trim_memory() -> None:
    """Give free memory back to the system."""
    _call_malloc("malloc_trim", 0)


def _call_malloc(name: str, *arguments: int) -> None:
    """Call a function of the C library that only glibc has, which alone needs it."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function:
        function(*arguments)
