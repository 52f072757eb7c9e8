"""Batches items from many coroutines and works through them in one thread."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Item = TypeVar("Item")
Result = TypeVar("Result")

Work = Callable[[Sequence[Item], Callable[[], bool]], Sequence[Result | Exception]]
_Pending = list[tuple[Item, asyncio.Future[Result]]]


@dataclass(eq=False)
class Batcher(Generic[Item, Result]):
    """Calls `work` with at most `max_items` items, one batch at a time per event loop.

    Items that arrive during a batch form the next one. Every event loop has its own queue, so one
    batcher can serve several loops, one after another. `work` returns a result or an exception for
    each item; it runs in a thread, and may stop early once the function it is given returns true.
    """

    work: Work[Item, Result]
    max_items: int
    gather_seconds: float  # how long the first item waits for others
    group_by: Callable[[Item], object] = lambda item: None  # items of a batch have the same key
    _pending: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pending[Item, Result]] = field(
        default_factory=WeakKeyDictionary, init=False
    )
    _workers: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = field(
        default_factory=WeakKeyDictionary, init=False
    )

    async def submit(self, item: Item) -> Result:
        """The item's result. Raises the exception that `work` returned for it, or raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._pending.setdefault(loop, []).append((item, future))
        if loop not in self._workers:
            self._workers[loop] = asyncio.create_task(self._run(loop))
        return await future

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await asyncio.sleep(self.gather_seconds)
            while batch := self._next_batch(loop):
                await self._process(batch)
        finally:
            del self._workers[loop]

    def _next_batch(self, loop: asyncio.AbstractEventLoop) -> _Pending[Item, Result]:
        """The oldest item that was not cancelled, and the next ones with the same key."""
        key = self.group_by
        batch: _Pending[Item, Result] = []
        remaining: _Pending[Item, Result] = []
        for item, future in self._pending[loop]:
            if future.done():
                continue
            fits = not batch or (len(batch) < self.max_items and key(item) == key(batch[0][0]))
            (batch if fits else remaining).append((item, future))
        self._pending[loop] = remaining
        return batch

    async def _process(self, batch: _Pending[Item, Result]) -> None:
        cancelled = threading.Event()

        def is_abandoned() -> bool:
            return cancelled.is_set() or all(future.done() for _, future in batch)

        results: Sequence[Result | Exception]
        try:
            results = await asyncio.to_thread(self.work, [item for item, _ in batch], is_abandoned)
        except Exception as error:  # of the whole batch, such as a lack of memory
            results = [error] * len(batch)
        finally:
            cancelled.set()
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
