"""A bounded queue: how much work may wait or run, in total and for each API key."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic

from .errors import APIError, too_many_requests, unavailable

_MAX_RETRY_SECONDS = 60
_NEWEST_WEIGHT = 0.2  # of the newest request in the running mean of durations


class AdmissionQueue:
    """Admits work until the queue is full, and estimates when a rejected client may retry.

    `per_owner`: how many `unit`s of one owner may wait or run; None: unlimited.
    """

    def __init__(
        self, concurrency: int, waiting: int, per_owner: int | None = None, unit: str = "requests"
    ) -> None:
        self.capacity = concurrency + waiting
        self._concurrency, self._per_owner, self._unit = concurrency, per_owner, unit
        self._slots = asyncio.Semaphore(concurrency)
        self._owners: Counter[str] = Counter()
        self._mean_seconds: float | None = None  # of the last units; None: none has ended
        self.closed = False
        self.running = 0

    @property
    def admitted(self) -> int:
        """Units that wait or run."""
        return self._owners.total()

    @property
    def waiting(self) -> int:
        """Units that are admitted and hold no slot yet."""
        return self.admitted - self.running

    @contextmanager
    def admit(self, owner: str = "", count: int = 1) -> Iterator[None]:
        """Hold `count` units of the queue's capacity; raises what `check` raises."""
        self.check(owner, count)
        self._owners[owner] += count
        try:
            yield
        finally:
            self._owners[owner] -= count
            if not self._owners[owner]:
                del self._owners[owner]

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait until one of the `concurrency` slots is free, then hold it."""
        async with self._slots:
            self.running += 1
            try:
                with self.timed():
                    yield
            finally:
                self.running -= 1

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Take the duration of the block, if it succeeds, into the estimates of waiting times."""
        start = monotonic()
        yield
        seconds, mean = monotonic() - start, self._mean_seconds
        self._mean_seconds = seconds if mean is None else mean + _NEWEST_WEIGHT * (seconds - mean)

    def expected_seconds(self, position: int) -> float | None:
        """Seconds until the unit that is `position`th in the queue (from 1) gets a slot.

        None: nothing is known yet, since no unit has ended.
        """
        if self._mean_seconds is None:
            return None
        return self._mean_seconds * position / self._concurrency

    def check(self, owner: str = "", count: int = 1) -> None:
        """Check that work would be admitted.

        Raises:
            APIError: the queue is closed (503), it is full, or the owner has too much in it (429).
        """
        if self.closed:
            message = "the service is being stopped; try again"
            raise unavailable(message, "stopping", self._retry_seconds)
        if self.admitted + count > self.capacity:
            raise self._full(f"{self.admitted} {self._unit}", "queue_full")
        if owner and self._per_owner and self._owners[owner] + count > self._per_owner:
            raise self._full(f"{self._per_owner} {self._unit} of this key", "rate_limit_exceeded")

    def rate_limit_headers(self, owner: str = "") -> dict[str, str]:
        """OpenAI's headers: units of an owner that may wait or run, and how many more now.

        `reset`: seconds until there is room for another; 0 while there is.
        """
        limit, remaining = self.capacity, self.capacity - self.admitted
        if owner and self._per_owner:
            limit = min(limit, self._per_owner)
            remaining = min(remaining, self._per_owner - self._owners[owner])
        return {
            "x-ratelimit-limit-requests": str(limit),
            "x-ratelimit-remaining-requests": str(max(0, remaining)),
            "x-ratelimit-reset-requests": "0s" if remaining > 0 else f"{self._retry_seconds}s",
        }

    def _full(self, load: str, code: str) -> APIError:
        message = f"{load} are waiting or running already; try again"
        return too_many_requests(message, code, self._retry_seconds)

    @property
    def _retry_seconds(self) -> int:
        """Seconds until capacity is free, estimated from the last requests."""
        rounds = max(1.0, self.admitted / self._concurrency)
        seconds = (self._mean_seconds or 1.0) * rounds / 2
        return min(_MAX_RETRY_SECONDS, max(1, math.ceil(seconds)))
