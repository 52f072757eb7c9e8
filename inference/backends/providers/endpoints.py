"""The endpoints of one provider: load balancing, concurrency limits, back-off and recovery.

A call goes to the endpoint with the most free slots; where none is free it waits, which counts
neither as a try nor as the call's time. After a 429 that call avoids the endpoint for the time it
names, and the endpoint gets fewer calls at once, then step by step more again; after 429s in a row
no call is sent there before that time. An endpoint that fails repeatedly is closed for a while and
reopens with one trial call. One that rejects its key gets no more calls.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pydantic import Field, SecretStr

from ...calls.retry import end_request, pause_timeout, report_usage
from ...roles import BackendError, RetryableError
from ...servers.instance import Lease, ServerInstance
from .errors import EndpointUnusableError, ThrottledError
from .settings import EndpointSettings

Connect = Callable[[EndpointSettings], Any]
Close = Callable[[Any], Awaitable[None]]

# After the last call, so that a server is not stopped between two calls of a run.
_LINGER_SECONDS = 30.0


class _LeasedEndpoint(EndpointSettings):
    """The address of a server that is leased, and its key."""

    token: SecretStr = Field(description="The key itself")

    def secret(self) -> str | None:
        return self.token.get_secret_value()


@dataclass
class Connection:
    """One endpoint's client, in one event loop.

    Args:
        server: that serves it, started on first use; None: it has a URL of its own.
        connect: makes the client of an endpoint.
        close_client: closes it, before the event loop ends.
    """

    settings: EndpointSettings
    server: ServerInstance | None
    connect: Connect
    close_client: Close
    is_doubtful: bool = False  # after a failed call: the next one looks whether it is there
    _client: Any = None
    _lease: Lease | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _timer: asyncio.TimerHandle | None = None

    async def client(self) -> Any:
        """The client; waits until the server is ready, which can take minutes.

        Raises `BackendError` where it cannot be started.
        """
        if self.server is None:
            self._client = self._client or self.connect(self.settings)
            return self._client
        self._stop_timer()
        async with self._lock:
            doubted, self.is_doubtful = self.is_doubtful, False
            lease = self._lease
            if lease is None or not lease.is_valid or (doubted and await self.has_lost_server()):
                await self.close()
                self._lease = lease = await self.server.lease()
                self._client = self.connect(
                    _LeasedEndpoint(url=lease.url, token=SecretStr(lease.key))
                )
            return self._client

    async def has_lost_server(self) -> bool:
        """Whether it is a server of the profile that has ended since it was leased."""
        lease = self._lease
        return lease is not None and not (lease.is_valid and await lease.is_reachable())

    def rest(self) -> None:
        """No call uses it now: after a while the server may be stopped."""
        if self._lease:
            self._stop_timer()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LINGER_SECONDS, self._release)

    async def close(self) -> None:
        self._release()
        if self._client is not None:
            client, self._client = self._client, None
            await self.close_client(client)

    def _release(self) -> None:
        self._stop_timer()
        if self._lease:
            self._lease.release()
            self._lease = None

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None


Result = TypeVar("Result")
Send = Callable[[Any], Awaitable[Result]]

_DEFAULT_BACKOFF_SECONDS = 2.0  # after a 429 that names no time
_MAX_BACKOFF_SECONDS = 120.0
_MAX_THROTTLES = 8  # 429s of one call, after which it counts as failed
# The limit of calls at once is multiplied after a 429 (once for all calls that were under way) and
# raised by a constant after each answer: sporadic 429s, of up to a fifth of the calls, cost little.
_LIMIT_DECREASE, _LIMIT_INCREASE = 0.7, 0.5
# In a row, or as many as are under way if these are more, after which an endpoint is closed: among
# many calls that fail at random some will always be consecutive.
_CLOSING_THROTTLES, _CLOSING_FAILURES = 2, 3
_MAX_CLOSED_SECONDS = 60.0

# Endpoint's name -> when a throttled call may try it again.
_BackoffUntil = dict[str, float]


@dataclass
class EndpointState:
    """An endpoint and its recent behaviour. Times are of `time.monotonic`."""

    name: str
    connection: Connection
    max_limit: int
    limit: float
    active_calls: int = 0
    failures: int = 0
    closures: int = 0
    throttles: int = 0
    limit_lowered_at: float = 0.0
    closed_at: float = 0.0
    closed_until: float = 0.0
    unusable_reason: str | None = None

    @property
    def free_share(self) -> float:
        """Share of its slots that are free."""
        if self.unusable_reason or self.active_calls >= int(self.limit):
            return 0.0
        return 1 - self.active_calls / self.limit

    def opens_at(self, backoff_until: _BackoffUntil) -> float:
        """When a call may be sent to it."""
        return max(self.closed_until, backoff_until.get(self.name, 0.0))

    async def send(self, send: Send[Result], client: Any, backoff_until: _BackoffUntil) -> Result:
        """Send one request; its outcome is recorded."""
        started_at = monotonic()
        try:
            result = await send(client)
        except ThrottledError as error:
            until = backoff_until[self.name] = monotonic() + _backoff_seconds(error.retry_after)
            self._record_throttle(started_at, until)
            raise
        except (RetryableError, ConnectionError, TimeoutError) as error:
            self._record_failure(started_at)
            self.connection.is_doubtful = True
            if isinstance(error, EndpointUnusableError):
                self.unusable_reason = str(error)
            raise
        except Exception:
            self._record_success()  # an error about this request alone
            raise
        self._record_success()
        return result

    def _record_success(self) -> None:
        self.failures = self.closures = self.throttles = 0
        self.limit = min(self.max_limit, self.limit + _LIMIT_INCREASE)

    def _record_throttle(self, started_at: float, until: float) -> None:
        """Lower the limit, unless this call started before it was lowered."""
        self.throttles += 1
        if started_at >= self.limit_lowered_at:
            self.limit_lowered_at = monotonic()
            self.limit = max(1.0, self.limit * _LIMIT_DECREASE)
        if self.throttles >= max(_CLOSING_THROTTLES, self.active_calls):
            self.closed_until = max(self.closed_until, until)

    def _record_failure(self, started_at: float) -> None:
        """After some failures in a row: close, each time twice as long; then allow one trial call.

        Failures of calls that were under way when it closed are not counted.
        """
        if started_at < self.closed_at:
            return
        self.failures += 1
        if self.closures or self.failures >= max(_CLOSING_FAILURES, self.active_calls):
            self.closed_at = monotonic()
            self.closed_until = self.closed_at + min(2.0**self.closures, _MAX_CLOSED_SECONDS)
            self.closures += 1
            self.limit = 1.0


@dataclass
class EndpointPool:
    """The endpoints of one event loop, and the calls that wait for a slot."""

    endpoints: list[EndpointState]
    waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    closer: AsyncGenerator[None, None] | None = None

    async def acquire(self, backoff_until: _BackoffUntil) -> EndpointState:
        """Wait for a slot of the endpoint with the most free ones.

        Raises `BackendError` where every endpoint is unusable.
        """
        while True:
            reasons = [
                f"{e.name}: {e.unusable_reason}" for e in self.endpoints if e.unusable_reason
            ]
            if len(reasons) == len(self.endpoints):
                raise BackendError("; ".join(reasons))
            if endpoint := self._least_busy(backoff_until):
                endpoint.active_calls += 1
                return endpoint
            await self._wait_for_change(backoff_until)

    def release(self, endpoint: EndpointState) -> None:
        """A call has ended: wake as many waiters as there are free slots now."""
        endpoint.active_calls -= 1
        if not endpoint.active_calls:
            endpoint.connection.rest()
        for _ in range(max(1, int(endpoint.limit) - endpoint.active_calls)):
            self._wake_one()

    def _least_busy(self, backoff_until: _BackoffUntil) -> EndpointState | None:
        now = monotonic()
        candidates = (e for e in self.endpoints if e.opens_at(backoff_until) <= now)
        free = [endpoint for endpoint in candidates if endpoint.free_share > 0]
        return max(free, key=lambda endpoint: endpoint.free_share, default=None)

    async def _wait_for_change(self, backoff_until: _BackoffUntil) -> None:
        """Return when a slot may be free, or a closed endpoint opens."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            async with asyncio.timeout(self._seconds_until_next_opening(backoff_until)):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if waiter not in self.waiters:
                self._wake_one()  # pass the wake-up on
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

    def _seconds_until_next_opening(self, backoff_until: _BackoffUntil) -> float | None:
        now = monotonic()
        usable = (endpoint for endpoint in self.endpoints if not endpoint.unusable_reason)
        waits = [endpoint.opens_at(backoff_until) - now for endpoint in usable]
        return min((wait for wait in waits if wait > 0), default=None)


class Endpoints:
    """The endpoints of one provider, with one client each.

    Args:
        connect: makes the client of an endpoint; called inside the event loop that will use it.
        close: closes a client, before that event loop ends.
        servers: the profile's servers by name, which endpoints may name.
    """

    def __init__(
        self,
        settings: Sequence[EndpointSettings],
        connect: Connect,
        close: Close,
        servers: Mapping[str, ServerInstance] | None = None,
    ) -> None:
        self._settings, self._connect, self._close = settings, connect, close
        self._servers = servers or {}
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, EndpointPool]
        self._pools = WeakKeyDictionary()

    async def call(self, send: Send[Result]) -> Result:
        """Send a request to one of the endpoints; after a 429 again, later or to another.

        Raises:
            RetryableError: it failed in a way that may pass.
            BackendError: every endpoint is unusable.
        """
        pool, throttles, is_again = await self._current_pool(), 0, False
        backoff_until: _BackoffUntil = {}
        while True:
            endpoint: EndpointState | None = None
            try:
                async with pause_timeout():
                    endpoint = await pool.acquire(backoff_until)
                    client = await endpoint.connection.client()
                result = await endpoint.send(send, client, backoff_until)
                end_request()
                return result
            except ThrottledError:
                throttles += 1
                if throttles >= _MAX_THROTTLES:
                    raise
            except EndpointUnusableError:
                pass
            except (RetryableError, ConnectionError):
                # It met a server as it ended: the next one is asked, once.
                if is_again or not (endpoint and await endpoint.connection.has_lost_server()):
                    raise
                is_again = True
            finally:
                if endpoint:
                    pool.release(endpoint)
            report_usage(retries=1)

    async def _current_pool(self) -> EndpointPool:
        """The pool of the running event loop: clients live on one, and assets run one each."""
        loop = asyncio.get_running_loop()
        if loop not in self._pools:
            pool = self._pools[loop] = EndpointPool([self._open(each) for each in self._settings])
            pool.closer = self._close_with_loop(pool, loop)
            await anext(pool.closer)
        return self._pools[loop]

    async def _close_with_loop(
        self, pool: EndpointPool, loop: asyncio.AbstractEventLoop
    ) -> AsyncGenerator[None, None]:
        """Never resumed: an event loop that ends closes its generators, this one the clients; so
        does the garbage collector, where the agents of a variant are no longer used."""
        try:
            yield
        finally:
            self._pools.pop(loop, None)
            for endpoint in pool.endpoints:
                await endpoint.connection.close()

    def _open(self, settings: EndpointSettings) -> EndpointState:
        server = self._servers[settings.server] if settings.server else None
        known = [part for part in (settings.url, settings.server, settings.key) if part]
        name, limit = " with ".join(known) or "the provider", settings.concurrency
        connection = Connection(settings, server, self._connect, self._close)
        return EndpointState(name, connection, limit, float(limit))


def _backoff_seconds(retry_after: float | None) -> float:
    """Seconds to avoid an endpoint, with jitter so that not all calls return at once."""
    seconds = _DEFAULT_BACKOFF_SECONDS if retry_after is None else retry_after
    return min(seconds, _MAX_BACKOFF_SECONDS) * random.uniform(1.0, 1.1)
