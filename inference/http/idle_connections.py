"""Connections that never finish asking: uvicorn waits for them for ever, this does not."""

from collections.abc import Iterable
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary


class IdleConnections:
    """Finds connections between two requests, or before the first, for longer than allowed.

    Args:
        seconds: until then the head of a request has to be complete.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: WeakKeyDictionary[Any, tuple[object, float]] = WeakKeyDictionary()

    def close(self, connections: Iterable[Any]) -> None:
        """Close those that have been idle for too long, as seen by calls now and before."""
        now = monotonic()
        for connection in list(connections):
            last = connection.cycle  # the last request and its answer
            if last is not None and not last.response_complete:
                self._since.pop(connection, None)
                continue
            seen, since = self._since.get(connection, (last, now))
            self._since[connection] = (last, since if seen is last else now)
            if seen is last and now - since > self._seconds:
                connection.transport.close()
