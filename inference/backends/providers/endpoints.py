"""Where the calls of a provider go: several endpoints or keys, each as busy as it lets us.

A call that is answered 429 keeps away from that endpoint for the time it asks for, which gets fewer
calls at once and then step by step more again; where nobody gets anything else, nobody calls before
that time. An endpoint that fails again and again is left alone for a while, and comes back by one
call on trial. One that refuses its key gets no more calls. A call goes to the endpoint with the
most room; where none has room it waits, which counts neither as a try nor as its time.
"""

import asyncio
import os
import random
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from pydantic import Field

from schemas.yaml_config import ConfigModel

from ...engine.pausable_timeout import pause_timeout
from ...engine.usage import report_usage
from ...roles import BackendError, RetryableError
from .errors import EndpointUnusableError, ThrottledError

Client = TypeVar("Client")
Answer = TypeVar("Answer")

_COOLING_SECONDS = 2.0  # after a 429 that names no time
_LONGEST_COOLING_SECONDS = 120.0
_PATIENCE = 8  # 429s of one call, after which it counts as failed
# Concurrency after a 429, once for all calls that were under way, and after each answer: 429s by
# chance, of up to a fifth of the calls, cost nearly nothing.
_LESS, _MORE = 0.7, 0.5
# In a row, or as many as are under way if these are more, after which an endpoint is left alone:
# of many calls that fail by chance a few will always come in a row.
_THROTTLES, _FAILURES = 2, 3
_LONGEST_PAUSE_SECONDS = 60.0


class EndpointSettings(ConfigModel):
    """One place to send calls to. Several keys of one provider are several endpoints."""

    url: str | None = Field(None, description="Base URL; null: the provider's own")
    key: str | None = Field(
        None, description="Environment variable that holds the key; null: none is needed"
    )
    concurrency: int = Field(
        16, ge=1, description="Calls under way at once, at most; 429s lower it for a while"
    )
    gpus: int = Field(
        0, ge=0, description="GPUs of yours that work behind it, for `interleave run --estimate`"
    )

    def secret(self) -> str | None:
        """The key itself.

        Raises:
            BackendError: the environment variable is not set.
        """
        if self.key is None:
            return None
        secret = os.environ.get(self.key, "").strip()
        if not secret:
            raise BackendError(f"the environment variable {self.key} is not set: put the key in")
        return secret


@dataclass
class EndpointState(Generic[Client]):
    """An endpoint's client, and how it has been answering."""

    name: str
    client: Client
    most: int
    limit: float
    busy: int = 0
    failures: int = 0
    pauses: int = 0
    throttles: int = 0
    lowered_at: float = 0.0
    closed_at: float = 0.0
    closed_until: float = 0.0
    refused: str | None = None

    @property
    def room(self) -> float:
        """Share of its slots that are free."""
        return 0.0 if self.refused or self.busy >= int(self.limit) else 1 - self.busy / self.limit

    def answered(self) -> None:
        self.failures = self.pauses = self.throttles = 0
        self.limit = min(self.most, self.limit + _MORE)

    def throttled(self, began: float, until: float) -> None:
        """Lower the limit, unless this call began before it was lowered."""
        self.throttles += 1
        if began >= self.lowered_at:
            self.lowered_at = monotonic()
            self.limit = max(1.0, self.limit * _LESS)
        if self.throttles >= max(_THROTTLES, self.busy):
            self.closed_until = max(self.closed_until, until)

    def failed(self, began: float) -> None:
        """After some failures in a row: closed, each time twice as long; then one on trial.

        Calls that were under way when it closed say nothing new.
        """
        if began < self.closed_at:
            return
        self.failures += 1
        if self.pauses or self.failures >= max(_FAILURES, self.busy):
            self.closed_at = monotonic()
            self.closed_until = self.closed_at + min(2.0**self.pauses, _LONGEST_PAUSE_SECONDS)
            self.pauses += 1
            self.limit = 1.0


# When a call may knock at a door again that wanted fewer calls.
_Shunned = dict[str, float]


@dataclass
class EndpointPool(Generic[Client]):
    """The endpoints as one event loop sees them, and who waits for a slot."""

    doors: list[EndpointState[Client]]
    waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    keeper: AsyncGenerator[None, None] | None = None

    async def entered(self, shunned: _Shunned) -> EndpointState[Client]:
        """A slot of the door with the most room, as soon as there is one."""
        while True:
            self._check_any_open()
            if door := self._best(shunned):
                door.busy += 1
                return door
            await self._changed(shunned)

    def left(self, door: EndpointState[Client]) -> None:
        """A call has ended: wake as many as there is room for now."""
        door.busy -= 1
        for _ in range(max(1, int(door.limit) - door.busy)):
            self._wake_one()

    def _best(self, shunned: _Shunned) -> EndpointState[Client] | None:
        now = monotonic()
        free = [d for d in self.doors if d.room > 0 and _opening(d, shunned) <= now]
        return max(free, key=lambda door: door.room, default=None)

    async def _changed(self, shunned: _Shunned) -> None:
        """Return when a slot may have come free, or a closed door opens."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            async with asyncio.timeout(self._until_next_opening(shunned)):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if waiter not in self.waiters:
                self._wake_one()  # it was its turn
            raise
        finally:
            with suppress(ValueError):
                self.waiters.remove(waiter)

    def _wake_one(self) -> None:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _until_next_opening(self, shunned: _Shunned) -> float | None:
        now = monotonic()
        waits = [_opening(door, shunned) - now for door in self.doors if not door.refused]
        return min((wait for wait in waits if wait > 0), default=None)

    def _check_any_open(self) -> None:
        refusals = [f"{door.name}: {door.refused}" for door in self.doors if door.refused]
        if len(refusals) == len(self.doors):
            raise BackendError("; ".join(refusals))


class Endpoints(Generic[Client]):
    """The endpoints of one provider, with one client each.

    Args:
        connect: makes the client of an endpoint; called inside the event loop that will use it.
        close: ends it, before that event loop ends.
    """

    def __init__(
        self,
        settings: Sequence[EndpointSettings],
        connect: Callable[[EndpointSettings], Client],
        close: Callable[[Client], Awaitable[None]],
    ) -> None:
        self._settings, self._connect, self._close = settings, connect, close
        self._doors: WeakKeyDictionary[asyncio.AbstractEventLoop, EndpointPool[Client]] = (
            WeakKeyDictionary()
        )

    async def call(self, ask: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """Ask an endpoint; one that wants fewer calls is asked again later, or another is.

        Raises:
            TryLater: it failed in a way that may pass.
            BackendError: every endpoint refuses its key.
        """
        shunned: _Shunned = {}
        throttles = 0
        while True:
            async with self._door(shunned) as door:
                try:
                    return await _asked(door, ask, shunned)
                except ThrottledError:
                    throttles += 1
                    if throttles >= _PATIENCE:
                        raise
                except EndpointUnusableError as error:
                    door.refused = str(error)
            report_usage(retries=1)

    @asynccontextmanager
    async def _door(self, shunned: _Shunned) -> AsyncIterator[EndpointState[Client]]:
        doors = await self._here()
        async with pause_timeout():
            door = await doors.entered(shunned)
        try:
            yield door
        finally:
            doors.left(door)

    async def _here(self) -> EndpointPool[Client]:
        """Clients live on an event loop; assets run one after another, each on its own."""
        loop = asyncio.get_running_loop()
        if loop not in self._doors:
            doors = self._doors[loop] = EndpointPool(
                [self._opened(each) for each in self._settings]
            )
            doors.keeper = self._kept(doors, loop)
            await anext(doors.keeper)
        return self._doors[loop]

    async def _kept(
        self, doors: EndpointPool[Client], loop: asyncio.AbstractEventLoop
    ) -> AsyncGenerator[None, None]:
        """Never resumed: a loop that ends closes its generators, and this one the clients."""
        try:
            yield
        finally:
            del self._doors[loop]
            for door in doors.doors:
                await self._close(door.client)

    def _opened(self, settings: EndpointSettings) -> EndpointState[Client]:
        most = settings.concurrency
        return EndpointState(_name(settings), self._connect(settings), most, float(most))


async def _asked(
    door: EndpointState[Client], ask: Callable[[Client], Awaitable[Answer]], shunned: _Shunned
) -> Answer:
    """One call through a door, which learns from how it ended."""
    began = monotonic()
    try:
        answer = await ask(door.client)
    except ThrottledError as error:
        until = shunned[door.name] = monotonic() + _cooling(error.after)
        door.throttled(began, until)
        raise
    except (RetryableError, ConnectionError, TimeoutError):
        door.failed(began)
        raise
    except Exception:
        door.answered()  # a refusal is an answer
        raise
    door.answered()
    return answer


def _cooling(after: float | None) -> float:
    """Seconds to keep away, with some jitter so that not all come back at once."""
    asked = min(_COOLING_SECONDS if after is None else after, _LONGEST_COOLING_SECONDS)
    return asked * random.uniform(1.0, 1.1)


def _opening(door: EndpointState[Client], shunned: _Shunned) -> float:
    return max(door.closed_until, shunned.get(door.name, 0.0))


def _name(settings: EndpointSettings) -> str:
    return " with ".join(part for part in (settings.url, settings.key) if part) or "the provider"
