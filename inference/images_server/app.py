"""OpenAI's images endpoints, and those for operators."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response

from ..http.auth import AuthMiddleware, Keys
from ..http.errors import install_error_handlers
from .handlers import ImageHandlers
from .models import ServableImageModel
from .ray_replicas import Readiness, ReplicaPool
from .settings import ImagesServerSettings


def make_app(
    model: ServableImageModel,
    replicas: ReplicaPool,
    settings: ImagesServerSettings,
    keys: Keys | None = None,
    report: Callable[[Readiness], object] = lambda readiness: None,
) -> FastAPI:
    """The server's application.

    Args:
        keys: accepted from callers; None: callers need no key.
        report: called whenever readiness changes.
    """
    handlers = ImageHandlers(model, replicas, settings, report)
    # Pages of documentation would load scripts from elsewhere.
    app = FastAPI(lifespan=handlers.lifespan, openapi_url=None)
    app.add_middleware(AuthMiddleware, keys=keys or Keys(), max_bytes=settings.allowed.bytes)
    install_error_handlers(app)
    _add_operations(app, handlers)

    @app.post("/v1/images/generations")
    async def generations(request: Request) -> Response:
        return await handlers.generations(request)

    @app.post("/v1/images/edits")
    async def edits(request: Request) -> Response:
        return await handlers.edits(request)

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [_describe(model)]}

    @app.get("/v1/models/{name}")
    async def retrieve_model(name: str) -> dict[str, Any]:
        handlers.check_model(name)
        return _describe(model)

    return app


def _add_operations(app: FastAPI, handlers: ImageHandlers) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/ready")
    async def ready() -> dict[str, Any]:
        state = handlers.check_ready()
        counts = {"replicas": state.running, "wanted": state.wanted}
        return {"ready": True, **counts, "reason": state.reason}

    @app.get("/metrics")
    async def metrics() -> Response:
        return handlers.metrics()


def _describe(model: ServableImageModel) -> dict[str, Any]:
    """A model as `/v1/models` lists it."""
    return {"id": model.name, "object": "model", "created": 0, "owned_by": "interleave-foundry"}
