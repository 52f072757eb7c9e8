"""What a backend reports about the call that it is in: tokens and cost, and waiting.

While a try waits for something other than the model, its timeout is paused and its slot is free
for another call.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter


@dataclass
class CallUsage:
    """Totals of one call, failed tries included; None: the backend reported nothing.

    `estimated_usd`: part of `cost_usd`, of requests without an answer that may be billed.
    `before_request`: awaited with the likely cost of a request that is about to be sent, and
    whether a later run resumes it.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    estimated_usd: float | None = None
    retries: int = 0  # requests that the backend itself repeated
    before_request: Callable[[float, bool], Awaitable[None]] | None = None


_usage: ContextVar[CallUsage | None] = ContextVar("usage", default=None)


def report_usage(**amounts: float | None) -> None:
    """Add to fields of the current call's `CallUsage`; outside `collect_usage` it does nothing."""
    usage = _usage.get()
    for name, amount in amounts.items():
        if usage and amount is not None:
            setattr(usage, name, (getattr(usage, name) or 0) + amount)


async def announce_request(likely_usd: float, resumable: bool = False) -> None:
    """A priced request is about to be sent: after a kill, the ledger has its likely cost.

    `resumable`: the same call, made again, gets the answer to this request and pays no other.
    """
    usage = _usage.get()
    if usage and usage.before_request:
        await usage.before_request(likely_usd, resumable)


@contextmanager
def collect_usage(usage: CallUsage) -> Iterator[None]:
    token = _usage.set(usage)
    try:
        yield
    finally:
        _usage.reset(token)


class PausableTimeout:
    """Holds one of `slots`, and cancels a try that is with the model for more than `limit` seconds.

    `seconds`: the time with the model so far, without pauses.
    """

    def __init__(self, limit: float, slots: asyncio.Semaphore) -> None:
        self.seconds = 0.0
        self._limit, self._slots = limit, slots
        self._holds_slot = False
        self._resumed_at = 0.0
        self._timeout = asyncio.timeout(None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around the try; TimeoutError if it took longer than the limit and was cancelled."""
        await self._take_slot()
        token = _current.set(self)
        try:
            async with self._timeout:
                self._resume()
                yield
        except TimeoutError as error:
            if self._timeout.expired():
                raise TimeoutError(f"no answer within {self._limit:g} s") from error
            raise
        finally:
            self._add_elapsed()
            _current.reset(token)
            self._free_slot()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        self._add_elapsed()
        self._timeout.reschedule(None)
        self._free_slot()
        try:
            yield
            await self._take_slot()
        finally:
            self._resume()

    async def _take_slot(self) -> None:
        await self._slots.acquire()
        self._holds_slot = True

    def _free_slot(self) -> None:
        if self._holds_slot:
            self._slots.release()
            self._holds_slot = False

    def _resume(self) -> None:
        self._resumed_at = perf_counter()
        remaining = self._limit - self.seconds
        self._timeout.reschedule(asyncio.get_running_loop().time() + remaining)

    def _add_elapsed(self) -> None:
        self.seconds += perf_counter() - self._resumed_at


_current: ContextVar[PausableTimeout | None] = ContextVar("timeout", default=None)


def pause_timeout() -> AbstractAsyncContextManager[None]:
    """Pauses the current try's timeout while a backend waits for something but the model."""
    timeout = _current.get()
    return timeout.paused() if timeout else nullcontext()  # None: outside `RetryingCaller`
