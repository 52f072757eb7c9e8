"""Questions from many coroutines, gathered into batches that one thread works through."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

Work = Callable[[Sequence[Asked], Callable[[], bool]], Sequence[Answered | Exception]]


class Batcher(Generic[Asked, Answered]):
    """Calls `work` with at most `most` items at once, never twice at the same time in one loop.

    Items that arrive while it works form the next batch. An event loop has a queue of its own, so
    one batcher serves loops that come and go.

    Args:
        work: answers items, each with a result or the exception its asker gets; it runs in a
            thread, and may stop early once the function it is given returns true.
        gather_seconds: how long the first item waits for company.
        kind: items of one batch are of one kind; by default all are.
    """

    def __init__(
        self,
        work: "Work[Asked, Answered]",
        most: int,
        gather_seconds: float,
        kind: Callable[[Asked], object] = lambda item: None,
    ) -> None:
        self._make_queue = partial(_Queue, work, most, gather_seconds, kind)
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _Queue[Asked, Answered]] = (
            WeakKeyDictionary()
        )

    async def ask(self, item: Asked) -> Answered:
        loop = asyncio.get_running_loop()
        if loop not in self._queues:
            self._queues[loop] = self._make_queue()
        return await self._queues[loop].ask(item)


class _Queue(Generic[Asked, Answered]):
    """The questions of one event loop."""

    def __init__(
        self,
        work: "Work[Asked, Answered]",
        most: int,
        gather_seconds: float,
        kind: Callable[[Asked], object],
    ) -> None:
        self._work, self._most, self._gather, self._kind = work, most, gather_seconds, kind
        self._waiting: deque[tuple[Asked, asyncio.Future[Answered]]] = deque()
        self._worker: asyncio.Task[None] | None = None

    async def ask(self, item: Asked) -> Answered:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        await asyncio.sleep(self._gather)
        while batch := self._next():
            await self._serve(batch)

    def _next(self) -> list[tuple[Asked, "asyncio.Future[Answered]"]]:
        """The oldest question to which an answer is still awaited, and the next of its kind."""
        batch: list[tuple[Asked, asyncio.Future[Answered]]] = []
        later: deque[tuple[Asked, asyncio.Future[Answered]]] = deque()
        for item, future in self._waiting:
            if future.done():
                continue
            fits = len(batch) < self._most and self._alike(item, batch)
            (batch if fits else later).append((item, future))
        self._waiting = later
        return batch

    def _alike(self, item: Asked, batch: list[tuple[Asked, "asyncio.Future[Answered]"]]) -> bool:
        return not batch or self._kind(item) == self._kind(batch[0][0])

    async def _serve(self, batch: list[tuple[Asked, "asyncio.Future[Answered]"]]) -> None:
        given_up = threading.Event()

        def nobody_waits() -> bool:
            return given_up.is_set() or all(future.done() for _, future in batch)

        items = [item for item, _ in batch]
        try:
            answers = await asyncio.to_thread(self._work, items, nobody_waits)
        except Exception as error:  # of the whole batch, such as a lack of memory
            answers = [error] * len(batch)
        finally:
            given_up.set()
        for (_, future), answer in zip(batch, answers, strict=True):
            _settle(future, answer)


def _settle(future: "asyncio.Future[Answered]", answer: Answered | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
