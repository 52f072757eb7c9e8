"""API keys: who may call, and who a caller is."""

import hashlib
import hmac
import os
from collections.abc import Iterable

from ..roles import BackendError
from .sockets import on_loopback

_OWNER_DIGITS = 16
_BEARER = b"Bearer "


class Keys:
    """The keys that callers may show.

    Args:
        keys: none: everybody may come.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._owners = {_digest(_BEARER + key.encode()): _owner(key) for key in keys}

    @property
    def required(self) -> bool:
        return bool(self._owners)

    def owner(self, authorization: bytes) -> str | None:
        """Id of the caller with that header, the same for the same key; None: the key is wrong.

        Where no key is required, it is empty. Takes as long whichever key matches, or none.
        """
        if not self.required:
            return ""
        given = _digest(authorization)
        found = None
        for expected, owner in self._owners.items():
            if hmac.compare_digest(given, expected):
                found = owner
        return found


def keys_for(host: str, variable: str) -> Keys:
    """The keys in an environment variable, separated by commas.

    Raises:
        BackendError: it would listen beyond this machine without a key.
    """
    keys = Keys(key for key in map(str.strip, os.environ.get(variable, "").split(",")) if key)
    if not keys.required and not on_loopback(host):
        raise BackendError(
            f"{host} can be reached from elsewhere: set {variable} to a key that callers must "
            "send, or listen on 127.0.0.1"
        )
    return keys


def _owner(key: str) -> str:
    return hashlib.sha256(f"owner:{key}".encode()).hexdigest()[:_OWNER_DIGITS]


def _digest(header: bytes) -> bytes:
    """Of one length for all, so that not even the length of a key shows."""
    return hashlib.sha256(header).digest()
