"""A service on its port, from the first request to the end of the last one."""

import asyncio
import resource
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from starlette.types import ASGIApp

from warehouse import Home

from ..generation.agent_resolver import AgentResolver
from ..http.auth import Keys, load_keys
from ..http.server import HTTPServer, listening_socket, shutdown_signals
from ..settings import Limits, LoopSettings
from .app import make_app, open_service
from .logs import log_as_json
from .request_manager import RequestManager
from .settings import ServiceSettings

KEYS = "INTERLEAVE_SERVICE_KEYS"

_CLOSING_SECONDS = 5  # for the last bytes of responses, after all requests have ended


def serve(
    home: Home,
    agents: AbstractAsyncContextManager[AgentResolver],
    defaults: LoopSettings,
    limits: Limits,
    settings: ServiceSettings,
    report: Callable[[str], object],
) -> None:
    """Serve until Ctrl-C or SIGTERM; running requests then get `grace_seconds` to finish.

    Args:
        defaults: settings of the loop, where a request does not set them.
        report: called with a line for each change of state.

    Raises:
        FoundryError: port taken, no key, no agents, or another service uses this home.
    """
    keys = load_keys(settings.host, KEYS)
    _raise_file_limit()
    with listening_socket(settings.host, settings.port) as listener, shutdown_signals():
        port = listener.getsockname()[1]
        report(f"starting; http://{settings.host}:{port}/v1 will be its address")
        log_as_json(settings.logs)
        asyncio.run(_serve(home, agents, defaults, limits, settings, keys, listener, report))


async def _serve(
    home: Home,
    agents: AbstractAsyncContextManager[AgentResolver],
    defaults: LoopSettings,
    limits: Limits,
    settings: ServiceSettings,
    keys: Keys,
    listener: socket.socket,
    report: Callable[[str], object],
) -> None:
    async with (
        agents as resolver,
        open_service(home, resolver, defaults, limits, settings) as service,
    ):
        server = ServiceServer(make_app(service, keys), service.manager, settings)
        report("ready")
        await server.serve(sockets=[listener])
        report("stopped")


class ServiceServer(HTTPServer):
    """Lets running requests finish before it stops."""

    def __init__(self, app: ASGIApp, manager: RequestManager, settings: ServiceSettings) -> None:
        super().__init__(app, settings.limits.read_seconds, _CLOSING_SECONDS)
        self._manager, self._grace_seconds = manager, settings.grace_seconds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Reject new requests with 503 until the running ones have ended."""
        await self._manager.close(self._grace_seconds, hurry=lambda: self.force_exit)
        await super().shutdown(sockets)


def _raise_file_limit() -> None:
    """Allow as many open connections as the system permits this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
