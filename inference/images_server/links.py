"""Images that a response names by URL instead of carrying them."""

import secrets
from collections import OrderedDict
from time import monotonic

from ..http.errors import not_found

PATH = "/v1/images/files/"
_SECONDS = 3600.0  # as OpenAI's
_MAX_BYTES = 256 * 2**20


class LinkedImages:
    """Images in memory, each for an hour, and the oldest ones less where memory is short.

    An address cannot be guessed, and needs no key: it goes where an <img> shows it.
    """

    def __init__(self, seconds: float = _SECONDS, max_bytes: int = _MAX_BYTES) -> None:
        self._seconds, self._max_bytes = seconds, max_bytes
        # Name -> when it expires, media type, content; the oldest first.
        self._images: OrderedDict[str, tuple[float, str, bytes]] = OrderedDict()

    def add(self, content: bytes, mime: str) -> str:
        """The path of an image."""
        name = f"{secrets.token_urlsafe(24)}.{mime.removeprefix('image/')}"
        self._images[name] = monotonic() + self._seconds, mime, content
        self._remove_old()
        return PATH + name

    def get(self, name: str) -> tuple[str, bytes]:
        """Media type and content; APIError (404): there is none, or not any more."""
        self._remove_old()
        if name not in self._images:
            raise not_found(f"no image {name} here, or not any more", "name")
        _, mime, content = self._images[name]
        return mime, content

    def _remove_old(self) -> None:
        total = sum(len(content) for *_, content in self._images.values())
        while self._images:
            expires, _, content = next(iter(self._images.values()))
            if expires > monotonic() and (total <= self._max_bytes or len(self._images) == 1):
                return
            self._images.popitem(last=False)
            total -= len(content)
