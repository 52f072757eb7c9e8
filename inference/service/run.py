"""A request under way: it keeps its events for whoever listens, from the first one on."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic

from ..events import TrajectoryFailed, TrajectoryFinished
from .lifecycle import ABANDONED, Ending, RunEvent, RunTerminated
from .request_parsing import ParsedRequest
from .responses.response_builder import ResponseBuilder


class GenerationRun:
    """What has happened so far; several may follow it, each at their own pace.

    Where it does not run in the background, it is cancelled when the last listener leaves.

    Args:
        key: the requester's own name for it.
        body: hash of what was sent.
    """

    def __init__(self, wish: ParsedRequest, owner: str, key: str | None, body: str) -> None:
        self.wish, self.owner, self.key, self.body = wish, owner, key, body
        self.asked = wish.asked
        self.came_at, self.began = datetime.now(UTC), monotonic()
        self.events: list[RunEvent] = []
        self.settled = asyncio.Event()
        self._news = asyncio.Event()
        self._listeners = 0
        self._task: asyncio.Task[object] | None = None
        self.cut: RunTerminated | None = None

    @property
    def id(self) -> str:
        return self.asked.response_id

    @property
    def ending(self) -> Ending | None:
        """The last event; None while there may be more."""
        last = self.events[-1] if self.events else None
        return (
            last
            if isinstance(last, TrajectoryFinished | TrajectoryFailed | RunTerminated)
            else None
        )

    def note(self, event: RunEvent) -> None:
        """Keep the next event, and tell everybody; nothing comes after an ending."""
        self.events.append(event)
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self, ping_seconds: float | None = None) -> AsyncIterator[RunEvent | None]:
        """The events from the first to the last; None where there was no news for so long."""
        position = 0
        while True:
            while position < len(self.events):
                yield self.events[position]
                position += 1
            if self.ending:
                return
            try:
                await asyncio.wait_for(self._news.wait(), ping_seconds)
            except TimeoutError:
                yield None

    async def over(self) -> Ending:
        """Its ending, once there is one."""
        while self.ending is None:
            await self._news.wait()
        return self.ending

    def answer(self) -> ResponseBuilder:
        """What it has come to."""
        answer = ResponseBuilder(self.asked)
        for event in self.events:
            answer.note(event)
        return answer

    @contextmanager
    def attended(self) -> Iterator[None]:
        """While somebody listens."""
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners and not self.wish.background:
                self.cancel(ABANDONED)

    def begin(self) -> None:
        """The task that tells it is this one.

        Raises:
            CancelledError: it was cancelled before.
        """
        self._task = asyncio.current_task()
        if self.cut:
            raise asyncio.CancelledError

    def cancel(self, why: RunTerminated) -> None:
        """End it, unless it has ended; `settled` is set when its work has stopped."""
        if self.ending is None and self.cut is None:
            self.cut = why
            if self._task:
                self._task.cancel()
