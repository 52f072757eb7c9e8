"""The time of one try of a call: waiting for a slot counts neither as its time nor as delay."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from time import perf_counter


class Clock:
    """Runs while a try is with the model, and ends it when it is late.

    `seconds`: how long it ran so far.
    """

    def __init__(self, limit: float) -> None:
        self.seconds = 0.0
        self._limit = limit
        self._since = 0.0
        self._timeout = asyncio.timeout(None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The try itself.

        Raises:
            TimeoutError: it took longer than the limit; it was cancelled, and its slot is free.
        """
        token = _current.set(self)
        try:
            async with self._timeout:
                self._run()
                yield
        except TimeoutError as error:
            if self._timeout.expired():
                raise TimeoutError(f"no answer within {self._limit:g} s") from error
            raise
        finally:
            self._stop()
            _current.reset(token)

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        self._stop()
        self._timeout.reschedule(None)
        try:
            yield
        finally:
            self._run()

    def _run(self) -> None:
        self._since = perf_counter()
        left = self._limit - self.seconds
        self._timeout.reschedule(asyncio.get_running_loop().time() + left)

    def _stop(self) -> None:
        self.seconds += perf_counter() - self._since


_current: ContextVar[Clock | None] = ContextVar("clock", default=None)


@asynccontextmanager
async def waiting() -> AsyncIterator[None]:
    """Around whatever a backend waits for that is not the model; stops the try's clock."""
    clock = _current.get()
    if clock is None:  # a backend used by hand
        yield
        return
    async with clock.stopped():
        yield
