"""A user's request as the service sees it: its events so far, and who follows them."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from time import monotonic

from warehouse import EncodedImage, ImageStore

from ..events import (
    Ending,
    ImageGenerated,
    PlanReady,
    RunEvent,
    RunTerminated,
    TrajectoryFailed,
    load_events,
)
from ..generation.requests import GenerationRequest
from ..generation.runner import PlanCheck
from .request_models import Json

CANCELLED = RunTerminated("cancelled", "it was cancelled", resumable=False)
ABANDONED = RunTerminated("cancelled", "the client disconnected")
STOPPED = RunTerminated("interrupted", "the service was stopped before it was finished")

_CHARACTERS_PER_TOKEN = 4


@dataclass(eq=False)
class GenerationRun:
    """A request that waits, runs or has ended; several clients may follow it.

    Unless it runs in the background, it is cancelled when the last client stops following.

    Args:
        owner: id of the client's API key; empty where none is needed.
        fields: of the API's request, which its response repeats, and `created_at`; `background`:
            it continues when the client disconnects; `store`: False: it is deleted when it has
            ended.
        body_hash: of the body that was sent under its idempotency key.
        check_plan: rejects plans that the request forbids; it is not stored.
        status: of a stored one, such as `complete`; `queued` until the request is settled.
        log: of a stored one's events; empty until the request is settled.
        images: the store of a stored one's images; None: it is not from the store.

    Attributes:
        settled: set when its work has stopped and its response is stored: only then clients may
            see the last event.
        termination: why it is being ended, before its task has stopped.
        waits: whether it waits for others to end.
    """

    owner: str
    request: GenerationRequest
    fields: Json
    body_hash: str | None = None
    check_plan: PlanCheck | None = None
    status: str = "queued"
    log: bytes = b""
    images: ImageStore | None = None

    received_at: datetime = field(default_factory=lambda: datetime.now(UTC), init=False)
    start: float = field(default_factory=monotonic, init=False)
    settled: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    termination: RunTerminated | None = field(default=None, init=False)
    waits: bool = field(default=True, init=False)
    _new_event: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _followers: int = field(default=0, init=False)
    _task: asyncio.Task[object] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.images:
            self.waits = False
            self.settled.set()

    @cached_property
    def events(self) -> list[RunEvent]:
        """The events so far; raises StorageError if stored ones cannot be read."""
        return load_events(self.log, self.images) if self.images else []

    @property
    def id(self) -> str:
        return f"resp_{self.request.generation_id}"

    @property
    def input_images(self) -> list[str]:
        """sha256 of the images given with the request."""
        return [image.sha256 for image in self.request.images]

    @property
    def created_at(self) -> float:
        """Seconds since 1970."""
        return float(self.fields["created_at"])

    @property
    def ending(self) -> Ending | None:
        """The last event; None while there may be more."""
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Ending) else None

    @property
    def generated_images(self) -> list[EncodedImage]:
        """All of them, in order."""
        return [event.image for event in self.events if isinstance(event, ImageGenerated)]

    @property
    def is_resumable(self) -> bool:
        """Whether the same request under the same key may get further."""
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

    @contextmanager
    def followed(self) -> Iterator[None]:
        """A client follows it while the context is open."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers and not self.fields.get("background"):
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


def check_plan(
    event: PlanReady,
    max_tokens: int | None = None,
    tokens_param: str = "",
    image_param: str | None = None,
) -> TrajectoryFailed | None:
    """The end of a generation whose plan does not meet a request's demands.

    Args:
        max_tokens: that it may have; `tokens_param`: the field that says it.
        image_param: the field that demands an image; None: it may be text only.
    """
    steps = event.plan.steps
    if image_param and all(step.prompt is None for step in steps):
        return TrajectoryFailed(f"{image_param}: the plan has no picture; describe one", True)
    characters = sum(len(step.text) for step in steps)
    # Some backends count no tokens.
    tokens = event.call.output_tokens or math.ceil(characters / _CHARACTERS_PER_TOKEN)
    if max_tokens is None or tokens <= max_tokens:
        return None
    had = f"the plan has {tokens} tokens, more than {max_tokens}"
    return TrajectoryFailed(f"{tokens_param}: {had}; texts are not cut", refused=True)
