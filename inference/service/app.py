"""A home's service: its parts, its application, and its port from start to end."""

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Response
from openai.types import Model
from starlette.types import ASGIApp

from schemas import FoundryError, StorageError
from warehouse import Home
from warehouse.file_lock import exclusive_lock

from ..generation.agent_resolver import AgentResolver
from ..generation.event_log import RunEvent
from ..generation.runner import GenerationRunner
from ..http.auth import AuthMiddleware, Keys, is_health_path, load_keys
from ..http.body_reader import BodyReader
from ..http.errors import APIError, install_error_handlers
from ..http.server import HTTPServer, listening_socket, shutdown_signals
from ..settings import Limits, LoopSettings
from .chat.serving import ChatServing
from .middleware import ConnectionCounter, RequestContextMiddleware
from .monitoring import GenerationLog, ServiceMetrics, log_as_json
from .openapi import describe_response, install_openapi
from .protocol import MODELS, critic_of
from .request_manager import RequestManager
from .request_parsing import RequestParser
from .response_store import ResponseStore
from .responses.serving import ResponsesServing
from .responses.streaming_events import warm_up
from .run import GenerationRun
from .settings import ServiceSettings
from .studio.router import studio_router

KEYS = "INTERLEAVE_SERVICE_KEYS"

_CLOSING_SECONDS = 5  # for the last bytes of responses, after all requests have ended
_RETRY_SECONDS = 5
_READY_SECONDS = 10

_log = logging.getLogger(__name__)


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

    async def run(listener: socket.socket) -> None:
        async with (
            agents as resolver,
            open_service(home, resolver, defaults, limits, settings) as service,
        ):
            server = ServiceServer(make_app(service, keys), service.manager, settings)
            report("ready")
            await server.serve(sockets=[listener])
            report("stopped")

    with listening_socket(settings.host, settings.port) as listener, shutdown_signals():
        port = listener.getsockname()[1]
        report(f"starting; http://{settings.host}:{port}/v1 will be its address")
        log_as_json(settings.logs)
        asyncio.run(run(listener))


@dataclass(frozen=True)
class Service:
    """The parts of a service; see `open_service`."""

    home: Home
    store: ResponseStore
    resolver: AgentResolver
    manager: RequestManager
    metrics: ServiceMetrics
    defaults: LoopSettings
    settings: ServiceSettings


@asynccontextmanager
async def open_service(
    home: Home,
    resolver: AgentResolver,
    defaults: LoopSettings,
    limits: Limits,
    settings: ServiceSettings,
) -> AsyncIterator[Service]:
    """A service that runs requests until the context ends.

    The requests of a killed service are marked as interrupted.

    Args:
        defaults: settings of the loop, where a request does not set them.

    Raises:
        StorageError: another service uses this home, or it cannot be written.
    """
    lock = home.local / "service" / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    in_use = f"another service uses {home.root}: stop it, or give this one another home"
    with exclusive_lock(lock, StorageError(in_use)):
        await asyncio.to_thread(warm_up)
        store, metrics = ResponseStore(home), ServiceMetrics()
        log = GenerationLog(settings.logs.prompts)

        def watch(run: GenerationRun, event: RunEvent) -> None:
            metrics.record(run, event)
            log.record(run, event)

        async with GenerationRunner(home, limits) as runner:
            manager = RequestManager(home, store, runner, resolver, settings, watch)
            if interrupted := manager.recover():
                _log.warning("%d requests were interrupted by the last stop", interrupted)
            try:
                yield Service(home, store, resolver, manager, metrics, defaults, settings)
            finally:
                await manager.close(0, hurry=lambda: True)
        store.close()


class ServiceServer(HTTPServer):
    """Lets running requests finish before it stops."""

    def __init__(self, app: ASGIApp, manager: RequestManager, settings: ServiceSettings) -> None:
        super().__init__(app, settings.limits.read_seconds, _CLOSING_SECONDS)
        self._manager, self._grace_seconds = manager, settings.grace_seconds

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Reject new requests with 503 until the running ones have ended."""
        await self._manager.close(self._grace_seconds, hurry=lambda: self.force_exit)
        await super().shutdown(sockets)


def make_app(service: Service, keys: Keys) -> FastAPI:
    """The application of an open service.

    Args:
        keys: of which a request needs one; none: it needs none.
    """
    settings = service.settings
    # FastAPI's pages of documentation would load scripts from other hosts.
    app = FastAPI(docs_url=None, redoc_url=None, version="1")
    connections = ConnectionCounter(settings.connections)
    app.add_middleware(
        AuthMiddleware,
        keys=keys,
        max_bytes=settings.limits.bytes,
        is_public=_is_public,
        local_only=True,
    )
    app.add_middleware(
        RequestContextMiddleware, connections=connections, count=service.metrics.count_response
    )
    install_error_handlers(app)
    bodies = BodyReader(settings.limits.bodies, settings.limits.read_seconds)
    parser = RequestParser(service.defaults, settings.limits)
    parts = (service.manager, parser, bodies, settings)
    ResponsesServing(*parts).add_routes(app)
    ChatServing(*parts).add_routes(app)
    _add_models_routes(app)
    _add_operations_routes(app, service, connections)
    app.include_router(studio_router(service.home, service.store))
    install_openapi(app, keys.required)
    return app


def _add_models_routes(app: FastAPI) -> None:
    @app.get("/v1/models", responses=describe_response("ModelList"))
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(name) for name in MODELS]}

    @app.get("/v1/models/{name}", responses=describe_response("Model"))
    async def retrieve_model(name: str) -> dict[str, Any]:
        critic_of(name)
        return _model(name)


def _add_operations_routes(app: FastAPI, service: Service, connections: ConnectionCounter) -> None:
    @app.get("/health", responses=describe_response("Alive"))
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/ready", responses=describe_response("Ready"))
    async def ready() -> dict[str, Any]:
        return {"ready": True, "versions": await _versions(service)}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return service.metrics.response(service.manager.queue, connections.open)


async def _versions(service: Service) -> dict[str, str]:
    """Role -> backend, model and version, once all of them answer."""
    try:
        if service.manager.queue.closed:
            raise FoundryError("the service is being stopped")
        async with asyncio.timeout(_READY_SECONDS):
            await service.resolver.check()
            return (await service.resolver.resolve()).names
    except (FoundryError, TimeoutError) as error:
        reason = str(error) or f"the models did not answer within {_READY_SECONDS} seconds"
        status = HTTPStatus.SERVICE_UNAVAILABLE
        raise APIError(status, reason, "not_ready", retry_after=_RETRY_SECONDS) from None


def _is_public(path: str) -> bool:
    """Whether a path needs no key; the studio's page asks for one."""
    return (
        is_health_path(path)
        or path in ("/", "/favicon.ico", "/openapi.json")
        or path.startswith("/studio/static/")
    )


def _model(name: str) -> dict[str, Any]:
    model = Model(id=name, object="model", created=0, owned_by="interleave-foundry")
    return model.model_dump()


def _raise_file_limit() -> None:
    """Allow as many open connections as the system permits this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
