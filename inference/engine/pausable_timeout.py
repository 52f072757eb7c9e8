"""The slot and the time of one try of a call.

What a try waits for that is not the model counts neither as its time nor as delay, and another
call has its slot meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from time import perf_counter


class Slot:
    """A place among the calls under way at once; `None`: there is no limit to them."""

    def __init__(self, pool: asyncio.Semaphore | None) -> None:
        self._pool = pool
        self._held = False

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_error: object) -> None:
        self.give_back()

    async def take(self) -> None:
        if self._pool:
            await self._pool.acquire()
            self._held = True

    def give_back(self) -> None:
        if self._pool and self._held:
            self._pool.release()
            self._held = False


class PausableTimeout:
    """Runs while a try is with the model, and ends it when it is late.

    `seconds`: how long it ran so far.
    """

    def __init__(self, limit: float, slot: Slot) -> None:
        self.seconds = 0.0
        self._limit = limit
        self._slot = slot
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
        self._slot.give_back()
        try:
            yield
            await self._slot.take()
        finally:
            self._run()

    def _run(self) -> None:
        self._since = perf_counter()
        left = self._limit - self.seconds
        self._timeout.reschedule(asyncio.get_running_loop().time() + left)

    def _stop(self) -> None:
        self.seconds += perf_counter() - self._since


_current: ContextVar[PausableTimeout | None] = ContextVar("clock", default=None)


@asynccontextmanager
async def pause_timeout() -> AsyncIterator[None]:
    """Around whatever a backend waits for that is not the model; stops the try's clock."""
    clock = _current.get()
    if clock is None:  # a backend used by hand
        yield
        return
    async with clock.stopped():
        yield
