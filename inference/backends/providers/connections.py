"""The client of an endpoint; where its server is one of the profile's, leased while it is used."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import Field, SecretStr

from ...servers.instance import Lease, ServerInstance
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


class Connection:
    """One endpoint's client, in one event loop.

    Args:
        server: that serves it, started on first use; None: it has a URL of its own.
        connect: makes the client of an endpoint.
        close: closes a client, before the event loop ends.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        server: ServerInstance | None,
        connect: Connect,
        close: Close,
    ) -> None:
        self._settings, self._server = settings, server
        self._connect, self._close = connect, close
        self._client = None if server else connect(settings)
        self._lease: Lease | None = None
        self._is_doubtful = False
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    async def client(self) -> Any:
        """The client; waits until the server is ready, which can take minutes.

        Raises:
            BackendError: the server cannot be started.
        """
        if self._server is None:
            return self._client
        self._stop_timer()
        async with self._lock:
            if self._lease is None or not await self._still_serves(self._lease):
                await self.close()
                self._lease = await self._server.lease()
                self._client = self._connect(self._address(self._lease))
            return self._client

    def doubt(self) -> None:
        """A call has failed: the next one looks whether the server is still there."""
        self._is_doubtful = True

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
            await self._close(client)

    async def _still_serves(self, lease: Lease) -> bool:
        if self._is_doubtful:
            self._is_doubtful = False
            return lease.is_valid and await lease.is_reachable()
        return lease.is_valid

    def _address(self, lease: Lease) -> EndpointSettings:
        concurrency = self._settings.concurrency
        return _LeasedEndpoint(url=lease.url, concurrency=concurrency, token=SecretStr(lease.key))

    def _release(self) -> None:
        self._stop_timer()
        if self._lease:
            self._lease.release()
            self._lease = None

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
