"""The bounded queue: how many requests may wait or run, all in all and for each key."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from time import monotonic

from ..http.errors import APIError
from .settings import ServiceSettings

_LONGEST_SECONDS = 60
_WEIGHT = 0.2  # of the newest request in the running mean


class AdmissionQueue:
    """Places for requests."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._most = settings.running + settings.waiting
        self._per_key, self._slots = settings.per_key, asyncio.Semaphore(settings.running)
        self._at_once = settings.running
        self._owners: Counter[str] = Counter()
        self._seconds = 1.0
        self.closed = False
        self.running = 0

    @property
    def waiting(self) -> int:
        """Requests that have a place and do not run yet."""
        return self._owners.total() - self.running

    @contextmanager
    def place(self, owner: str) -> Iterator[None]:
        """Hold a place.

        Raises:
            Refusal: there is none.
        """
        self.check(owner)
        self._owners[owner] += 1
        try:
            yield
        finally:
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one's turn, then hold it."""
        async with self._slots:
            begun = monotonic()
            self.running += 1
            try:
                yield
                self._seconds += _WEIGHT * (monotonic() - begun - self._seconds)
            finally:
                self.running -= 1

    def check(self, owner: str) -> None:
        """Whether there is a place.

        Raises:
            Refusal: there is none.
        """
        if self.closed:
            raise APIError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the service is being stopped; try again",
                "stopping",
                retry_after=self._wait,
            )
        if self._owners.total() >= self._most:
            raise self._full(f"{self._most} requests are waiting or running already", "queue_full")
        if owner and self._owners[owner] >= self._per_key:
            mine = f"{self._per_key} requests of this key are waiting or running already"
            raise self._full(mine, "rate_limit_exceeded")

    def _full(self, message: str, code: str) -> APIError:
        return APIError(
            HTTPStatus.TOO_MANY_REQUESTS, f"{message}; try again", code, retry_after=self._wait
        )

    @property
    def _wait(self) -> int:
        """Seconds until a place is free, going by the last requests."""
        rounds = max(1.0, self._owners.total() / self._at_once)
        return min(_LONGEST_SECONDS, max(1, math.ceil(self._seconds * rounds / 2)))
