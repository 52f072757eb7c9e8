"""A service on its port, from the first request to the last one that may still finish."""

import asyncio
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

import uvicorn

from warehouse import Home

from ..generation.agent_resolver import AgentResolver
from ..http.idle_connections import IdleConnections
from ..http.keys import Keys, keys_for
from ..http.sockets import SIGNALS, listening_socket, shutdown_signals
from ..settings import Limits, LoopSettings
from .app import make_app
from .logs import log_as_json
from .request_manager import RequestManager
from .service import open_service
from .settings import ServiceSettings

KEYS = "INTERLEAVE_SERVICE_KEYS"

_TICKS = 5
_CLOSING_SECONDS = 5  # for the last bytes of answers


def serve(
    home: Home,
    casting: AbstractAsyncContextManager[AgentResolver],
    usual: LoopSettings,
    limits: Limits,
    settings: ServiceSettings,
    tell: Callable[[str], object],
) -> None:
    """Serve until Ctrl-C or TERM; what is under way then may finish, or is handed back.

    Args:
        usual: rules of requests that say nothing else.
        tell: hears in a line each what happens.

    Raises:
        FoundryError: port taken, no key, no players, or another service on this home.
    """
    keys = keys_for(settings.host, KEYS)
    _many_files()
    with listening_socket(settings.host, settings.port) as door, shutdown_signals():
        port = door.getsockname()[1]
        tell(f"starting; http://{settings.host}:{port}/v1 will be its address")
        log_as_json(settings.logs)
        asyncio.run(_serve(home, casting, usual, limits, settings, keys, door, tell))


async def _serve(
    home: Home,
    casting: AbstractAsyncContextManager[AgentResolver],
    usual: LoopSettings,
    limits: Limits,
    settings: ServiceSettings,
    keys: Keys,
    door: socket.socket,
    tell: Callable[[str], object],
) -> None:
    async with casting as players, open_service(home, players, usual, limits, settings) as service:
        server = ServiceServer(make_app(service, keys), service.desk, settings)
        tell("ready")
        await server.serve(sockets=[door])
        tell("stopped")


class ServiceServer(uvicorn.Server):
    """One that lets stories end before it stops."""

    def __init__(self, app: object, desk: RequestManager, settings: ServiceSettings) -> None:
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                timeout_graceful_shutdown=_CLOSING_SECONDS,
            )
        )
        self._desk, self._grace = desk, settings.grace_seconds
        self._idle = IdleConnections(settings.limits.read_seconds)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % _TICKS == 0:
            self._idle.close(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Meanwhile new requests are told to come back."""
        await self._desk.close(self._grace, hurry=lambda: self.force_exit)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn does, without raising them once more when everything is over."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _many_files() -> None:
    """As many open connections as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
