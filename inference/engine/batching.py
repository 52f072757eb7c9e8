"""Batches items from many coroutines and works through them in one thread."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Item = TypeVar("Item")
Result = TypeVar("Result")

Work = Callable[[Sequence[Item], Callable[[], bool]], Sequence[Result | Exception]]


class Batcher(Generic[Item, Result]):
    """Calls `work` with at most `max_items` items, one batch at a time per event loop.

    Items that arrive during a batch form the next one. Every event loop has its own queue, so one
    batcher can serve several loops, one after another.

    Args:
        work: returns a result or an exception for each item; it runs in a thread, and may stop
            early once the function that it is given returns true.
        gather_seconds: how long the first item waits for others.
        group_by: items of one batch have the same key; by default all have.
    """

    def __init__(
        self,
        work: "Work[Item, Result]",
        max_items: int,
        gather_seconds: float,
        group_by: Callable[[Item], object] = lambda item: None,
    ) -> None:
        self.work, self.max_items = work, max_items
        self.gather_seconds, self.group_by = gather_seconds, group_by
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue[Item, Result]] = (
            WeakKeyDictionary()
        )

    async def submit(self, item: Item) -> Result:
        """The item's result. Raises the exception that `work` returned for it, or raised."""
        loop = asyncio.get_running_loop()
        if loop not in self._queues:
            self._queues[loop] = _Queue(self)
        return await self._queues[loop].submit(item)


class _Queue(Generic[Item, Result]):
    """The items of one event loop."""

    def __init__(self, batcher: Batcher[Item, Result]) -> None:
        self._batcher = batcher
        self._pending: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        future = asyncio.get_running_loop().create_future()
        self._pending.append((item, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        await asyncio.sleep(self._batcher.gather_seconds)
        while batch := self._next_batch():
            await self._process(batch)

    def _next_batch(self) -> list[tuple[Item, "asyncio.Future[Result]"]]:
        """The oldest item that was not cancelled, and the next ones with the same key."""
        key, max_items = self._batcher.group_by, self._batcher.max_items
        batch: list[tuple[Item, asyncio.Future[Result]]] = []
        remaining: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        for item, future in self._pending:
            if future.done():
                continue
            fits = not batch or (len(batch) < max_items and key(item) == key(batch[0][0]))
            (batch if fits else remaining).append((item, future))
        self._pending = remaining
        return batch

    async def _process(self, batch: list[tuple[Item, "asyncio.Future[Result]"]]) -> None:
        cancelled = threading.Event()

        def is_abandoned() -> bool:
            return cancelled.is_set() or all(future.done() for _, future in batch)

        items = [item for item, _ in batch]
        results: Sequence[Result | Exception]
        try:
            results = await asyncio.to_thread(self._batcher.work, items, is_abandoned)
        except Exception as error:  # of the whole batch, such as a lack of memory
            results = [error] * len(batch)
        finally:
            cancelled.set()
        for (_, future), result in zip(batch, results, strict=True):
            _resolve(future, result)


def _resolve(future: "asyncio.Future[Result]", result: Result | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
