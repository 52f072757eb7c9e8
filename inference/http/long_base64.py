"""Long base64 is cut out of JSON while it arrives, and is whole again when it is decoded.

What handles a large string at once, such as a JSON parser, holds the interpreter's lock for tens of
milliseconds, in a thread as well. Cut out are runs of base64's characters: within JSON they can
only be inside of a string. A random key stands in their place.
"""

import base64
import string
from collections.abc import Iterator
from contextvars import ContextVar
from secrets import token_hex

_ALPHABET = f"{string.ascii_letters}{string.digits}+/=".encode()
_MAX_RUN = 65_536  # bytes: the start of a longer one stays in the JSON
_BLOCK = 2**20  # characters that are decoded at once
_KEY_START = "===="  # nowhere in base64
_KEY_LENGTH = len(_KEY_START) + 32

_cut_out: ContextVar[dict[str, list[bytes]]] = ContextVar("cut_out")


class Base64Cutter:
    """Shortens the body of the current request, whose task may then use the functions below."""

    def __init__(self) -> None:
        self._cut_out: dict[str, list[bytes]] = {}
        self._run_length = 0
        self._run: list[bytes] | None = None  # what is cut out of it
        _cut_out.set(self._cut_out)

    def shorten(self, part: bytes) -> Iterator[bytes]:
        """What the parser gets of the next part of the body."""
        others = part.lstrip(_ALPHABET) if part.translate(None, _ALPHABET) else b""
        yield from self._shorten_run(part[: len(part) - len(others)])
        if others:
            end = len(others.rstrip(_ALPHABET))
            self._run_length, self._run = 0, None
            yield others[:end]
            yield from self._shorten_run(others[end:])

    def _shorten_run(self, part: bytes) -> Iterator[bytes]:
        room = max(0, _MAX_RUN - self._run_length)
        self._run_length += len(part)
        yield part[:room]
        if len(part) > room:
            if self._run is None:
                key = _KEY_START + token_hex(16)
                self._run = self._cut_out[key] = []
                yield key.encode()
            self._run.append(part[room:])


def is_cut(text: str) -> bool:
    """Whether a part of this text of the current request was cut out."""
    return any(key in text for key in _cut_out.get({}))


def decode_base64(text: str) -> bytes:
    """Decode base64 of the current request.

    Raises:
        ValueError: it is not base64.
    """
    decoded, left, is_padded = list[bytes](), b"", False
    for block in _blocks(text):
        if is_padded:
            raise ValueError("padding before the end")
        data = left + block
        end = len(data) // 4 * 4
        decoded.append(base64.b64decode(data[:end], validate=True))
        left, is_padded = data[end:], data.endswith(b"=", 0, end)
    return b"".join([*decoded, base64.b64decode(left, validate=True)])


def _blocks(text: str) -> Iterator[bytes]:
    """A text with what was cut out of it, in blocks that are not empty."""
    start = 0
    while (end := text.find(_KEY_START, start)) >= 0:
        yield from _split(text[start:end])
        start = end + _KEY_LENGTH
        parts = _cut_out.get({}).get(text[end:start])
        if parts is None:
            raise ValueError("padding before the end")
        yield from parts
    yield from _split(text[start:])


def _split(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), _BLOCK):
        yield text[start : start + _BLOCK].encode("ascii")
