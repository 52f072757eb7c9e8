"""A home's service: its parts, its application, and its port from start to end."""

import asyncio
import gc
import logging
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

from fastapi import FastAPI, Response
from pydantic import BaseModel
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from schemas import FoundryError, StorageError
from warehouse import Home
from warehouse.file_lock import exclusive_lock, is_free
from warehouse.storage import storage_errors

from ..backends.providers.settings import BudgetSettings
from ..generation.agent_resolver import AgentResolver
from ..generation.runner import GenerationRunner
from ..http.auth import AuthMiddleware, Keys, is_health_path, load_keys
from ..http.body_reader import BodyReader
from ..http.errors import install_error_handlers, not_found, unavailable
from ..http.server import HTTPServer, listening_socket, shutdown_signals
from ..review_log import restore_reviews
from ..settings import Limits, LoopSettings
from .chat import ChatRequest, ChatServing
from .files import FileStore, FileUpload, files_router
from .images import EditRequest, ImagesRequest, ImagesServing
from .monitoring import RequestContextMiddleware, log_as_json
from .openapi import ERRORS, add_openapi_routes
from .request_manager import RequestManager
from .request_parsing import RequestParser, available_models
from .response_store import FILE
from .responses_api import ResponsesServing
from .responses_request import ResponsesRequest
from .settings import ServiceSettings
from .studio.branches import branch_router
from .studio.costs_benchmarks import ReportRenderer, benchmark_router, costs_router
from .studio.reviews import ReviewRequest, review_router
from .studio.router import PAGE_HEADERS, add_studio_routes

KEYS = "INTERLEAVE_SERVICE_KEYS"

_LOCK = "service/lock"
_CLOSING_SECONDS = 5  # for the last bytes of responses, after all requests have ended
_READY_SECONDS = 10

_log = logging.getLogger(__name__)


def serve(
    home: Home,
    agents: AbstractAsyncContextManager[AgentResolver],
    defaults: LoopSettings,
    limits: Limits,
    settings: ServiceSettings,
    report: Callable[[str], object],
    render_report: ReportRenderer,
    budget: BudgetSettings | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM; running requests then get `grace_seconds` to finish.

    Args:
        defaults: settings of the loop, where a request does not set them.
        report: called with a line for each change of state.
        render_report: makes the page of benchmark runs.
        budget: shown on the page of costs; None: there is none.

    Raises:
        FoundryError: port taken, no key, no agents, or another service uses this home.
    """
    keys = load_keys(settings.host, KEYS)
    # As many open connections as the system permits this process.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def run(listener: socket.socket) -> None:
        async with agents as resolver, open_service(home, resolver, limits, settings) as manager:
            app = make_app(manager, defaults, keys, render_report, budget)
            server = ServiceServer(app, manager)
            gc.collect()
            gc.freeze()  # what was imported is not searched again, for 0.2 s at a time
            report("ready")
            await server.serve(sockets=[listener])
            report("stopped")

    with listening_socket(settings.host, settings.port) as listener, shutdown_signals():
        port = listener.getsockname()[1]
        report(f"starting; http://{settings.host}:{port}/v1 will be its address")
        log_as_json(settings.logs)
        asyncio.run(run(listener))


@asynccontextmanager
async def open_service(
    home: Home, resolver: AgentResolver, limits: Limits, settings: ServiceSettings
) -> AsyncIterator[RequestManager]:
    """A home's requests, which run until the context ends; those of a killed service are marked.

    Raises:
        StorageError: another service uses this home, or it cannot be written.
    """
    lock = home.local / _LOCK
    with storage_errors("written", lock.parent):
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    in_use = f"another service uses {home.root}: stop it, or give this one another home"
    with exclusive_lock(lock, StorageError(in_use)):
        async with GenerationRunner(home, limits) as runner:
            manager = RequestManager(home, runner, resolver, settings)
            if interrupted := manager.recover():
                _log.warning("%d requests were interrupted by the last stop", interrupted)
            try:
                await asyncio.to_thread(restore_reviews, home)
            except StorageError as error:
                _log.warning("reviews cannot be read: %s", error)
            try:
                yield manager
            finally:
                await manager.close(0, hurry=lambda: True)
        manager.store.close()


def is_running(home: Home) -> bool:
    """Whether a service uses a home."""
    lock = home.local / _LOCK
    return lock.exists() and not is_free(lock)


def has_responses(home: Home) -> bool:
    """Whether a service ever stored responses in a home."""
    return (home.local / FILE).exists()


class ServiceServer(HTTPServer):
    """Applies the retention of responses; lets running requests finish before it stops."""

    def __init__(self, app: ASGIApp, manager: RequestManager) -> None:
        super().__init__(app, manager.settings.limits.read_seconds, _CLOSING_SECONDS)
        self._manager = manager

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._retention = asyncio.create_task(self._manager.apply_retention_daily())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Reject new requests with 503 until the running ones have ended."""
        self._retention.cancel()
        await self._manager.close(self._manager.settings.grace_seconds, lambda: self.force_exit)
        await super().shutdown(sockets)


def make_app(
    manager: RequestManager,
    defaults: LoopSettings,
    keys: Keys,
    render_report: ReportRenderer,
    budget: BudgetSettings | None = None,
) -> FastAPI:
    """The application of an open service; `defaults`, `render_report`, `budget`: see `serve`."""
    settings = manager.settings
    # FastAPI's own pages of documentation would load scripts from other hosts.
    app = FastAPI(openapi_url=None, version="1", responses=ERRORS)
    origins = settings.cors_origins
    app.add_middleware(
        AuthMiddleware, keys, settings.limits.bytes, _is_public, local_only=True, origins=origins
    )
    if origins:  # outside of authentication: a preflight has no key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["*"],
            allow_private_network=True,
        )
    app.add_middleware(
        RequestContextMiddleware, manager.metrics, manager.queue, settings.connections
    )
    install_error_handlers(app)
    bodies = BodyReader(settings.limits.bodies, settings.limits.read_seconds)
    parser = RequestParser(defaults, settings.limits)
    files = FileStore(manager.home)
    ResponsesServing(manager, parser, bodies, files).add_routes(app)
    ChatServing(manager, parser, bodies).add_routes(app)
    ImagesServing(manager, parser, bodies).add_routes(app)
    app.include_router(files_router(files, bodies, settings.limits))
    _add_models_routes(app, manager)
    _add_operations_routes(app, manager)
    add_studio_routes(app, manager, defaults)
    app.include_router(benchmark_router(manager.home, render_report))
    app.include_router(review_router(manager.home, bodies))
    app.include_router(branch_router(manager.home))
    app.include_router(costs_router(manager.home, budget, manager.store, keys.several))
    creating = (ResponsesRequest, ChatRequest, ImagesRequest, EditRequest)
    add_openapi_routes(app, (*creating, FileUpload, ReviewRequest), keys.required, PAGE_HEADERS)
    return app


class Model(BaseModel):
    """A served model."""

    id: str
    created: int = 0
    object: Literal["model"] = "model"
    owned_by: str = "interleave-foundry"
    shutdown_date: None = None


class ModelList(BaseModel):
    """The served models."""

    object: Literal["list"] = "list"
    data: list[Model]


class Alive(BaseModel):
    """The process runs."""

    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    """Requests can be answered."""

    ready: Literal[True] = True
    versions: dict[str, str]


def _add_models_routes(app: FastAPI, manager: RequestManager) -> None:
    async def available() -> list[str]:
        return available_models(await manager.resolver.critics())

    @app.get("/v1/models")
    async def list_models() -> ModelList:
        return ModelList(data=[Model(id=name) for name in await available()])

    @app.get("/v1/models/{name}")
    async def retrieve_model(name: str) -> Model:
        if name not in (names := await available()):
            message = f"no model {name} here: there are {', '.join(names)}"
            raise not_found(message, "model", "model_not_found")
        return Model(id=name)


def _add_operations_routes(app: FastAPI, manager: RequestManager) -> None:
    @app.get("/health")
    async def health() -> Alive:
        return Alive()

    @app.get("/ready")
    async def ready() -> Ready:
        try:
            if manager.queue.closed:
                raise FoundryError("the service is being stopped")
            await asyncio.to_thread(manager.check_storage)
            async with asyncio.timeout(_READY_SECONDS):
                await manager.resolver.check()
                roles = await manager.resolver.resolve()
        except (FoundryError, TimeoutError) as error:
            reason = str(error) or f"the models did not answer within {_READY_SECONDS} seconds"
            raise unavailable(reason, "not_ready") from None
        return Ready(versions=roles.names)

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return manager.metrics.response(manager.queue)


def _is_public(path: str) -> bool:
    """Whether a path needs no key; the studio's page asks for one."""
    return (
        is_health_path(path)
        or path in ("/", "/favicon.ico", "/openapi.json", "/docs", "/studio/settings")
        or path.startswith("/studio/static/")
    )
