"""A generation as the service sees it: its request, its events so far, and who follows them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from time import monotonic

from warehouse import EncodedImage

from ..events import Ending, ImageGenerated, RunEvent, RunTerminated, TrajectoryFailed
from ..http.errors import APIError, bad_request, unavailable
from .response_store import StoredResponse
from .responses.response_builder import ResponseBuilder

CANCELLED = RunTerminated("cancelled", "it was cancelled", resumable=False)
ABANDONED = RunTerminated("cancelled", "the client disconnected")
STOPPED = RunTerminated("interrupted", "the service was stopped before it was finished")


class GenerationRun:
    """A generation that waits, runs or has ended; several clients may follow it.

    Unless it runs in the background, it is cancelled when the last client stops following.

    Attributes:
        stored: its row when it began.
        settled: set when its work has stopped and its response is stored: only then clients may
            see the last event.
        termination: why it is being ended, before its task has stopped.
        waits: whether it waits for others to end.
    """

    def __init__(self, stored: StoredResponse) -> None:
        self.stored = stored
        self.received_at, self.start = datetime.now(UTC), monotonic()
        self.events: list[RunEvent] = []
        self.settled = asyncio.Event()
        self.termination: RunTerminated | None = None
        self.waits = True
        self._new_event = asyncio.Event()
        self._followers = 0
        self._task: asyncio.Task[object] | None = None

    @classmethod
    def restore(cls, stored: StoredResponse) -> "GenerationRun":
        """A stored generation, to which no event will be added.

        Raises:
            StorageError: its events cannot be read.
        """
        run = cls(stored)
        run.events = stored.events()
        run.waits = False
        run.settled.set()
        return run

    @property
    def ending(self) -> Ending | None:
        """The last event; None while there may be more."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Ending) else None

    @property
    def images(self) -> list[EncodedImage]:
        """All generated images, in order."""
        return [event.image for event in self.events if isinstance(event, ImageGenerated)]

    @property
    def is_resumable(self) -> bool:
        """Whether another run may get further."""
        match self.ending:
            case RunTerminated(resumable=resumable):
                return resumable
            case TrajectoryFailed(refused=refused):
                return not refused
        return False

    def note(self, event: RunEvent) -> None:
        """Add the next event and wake the followers; nothing may follow an ending."""
        self.events.append(event)
        self._new_event.set()
        self._new_event = asyncio.Event()

    async def follow(self) -> AsyncIterator[RunEvent]:
        """The events from the first to the last, as they happen; the last one once it is stored."""
        position = 0
        while True:
            while position < len(self.events):
                event = self.events[position]
                if isinstance(event, Ending):
                    await self.settled.wait()
                yield event
                position += 1
            if self.ending or self.settled.is_set():
                return
            await self._new_event.wait()

    async def wait_ended(self) -> None:
        async for _ in self.follow():
            pass

    def failure(self) -> APIError | None:
        """Its ending as an error; None: there is a sequence, or it was cancelled."""
        reason = self.build_response().error
        match self.ending:
            case TrajectoryFailed(refused=True):
                return bad_request(reason, code="invalid_prompt")
            case TrajectoryFailed():
                # Calls have been retried already: the client need not retry.
                status = HTTPStatus.INTERNAL_SERVER_ERROR
                return APIError(status, reason, "server_error", retry=False)
            case RunTerminated(status="interrupted") as ending if ending == STOPPED:
                return unavailable(reason, "interrupted")
            case RunTerminated(status="interrupted"):
                return APIError(HTTPStatus.GATEWAY_TIMEOUT, reason, "interrupted", retry=False)
        return None

    def build_response(self) -> ResponseBuilder:
        builder = ResponseBuilder(self.stored)
        for event in self.events:
            builder.note(event)
        return builder

    @contextmanager
    def followed(self) -> Iterator[None]:
        """A client follows it while the context is open."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers and not self.stored.fields.get("background"):
                self.cancel(ABANDONED)

    def attach_task(self) -> None:
        """Make the current task the one that `cancel` cancels.

        Raises:
            CancelledError: it has been cancelled already.
        """
        self._task = asyncio.current_task()
        if self.termination:
            raise asyncio.CancelledError

    def cancel(self, termination: RunTerminated) -> None:
        """End it unless it has ended."""
        if self.ending is None and self.termination is None:
            self.termination = termination
            if self._task:
                self._task.cancel()
