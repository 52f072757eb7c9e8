"""OpenAI's images endpoints, and those for operators."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response

from ..http.auth_middleware import AuthMiddleware
from ..http.errors import install_error_handlers
from ..http.keys import Keys
from . import responses
from .handlers import ImageHandlers
from .models import ServableImageModel
from .ray_replicas import Readiness, ReplicaPool
from .requests import read_edit, read_generation
from .settings import ImagesServerSettings

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def make_app(
    model: ServableImageModel,
    studio: ReplicaPool,
    settings: ImagesServerSettings,
    keys: Keys | None = None,
    tell: Callable[[Readiness], object] = lambda seen: None,
) -> FastAPI:
    """The server's application.

    Args:
        keys: what callers have to know; None: nothing.
        tell: hears whenever readiness changes.
    """
    desk = ImageHandlers(model, studio, settings, tell)
    # Pages of documentation would load scripts from elsewhere.
    app = FastAPI(lifespan=desk.open, openapi_url=None)
    app.add_middleware(AuthMiddleware, keys=keys or Keys(), most_bytes=settings.allowed.bytes)
    install_error_handlers(app)

    @app.post("/v1/images/generations")
    async def generations(request: Request) -> Response:
        return await desk.serve("generations", read_generation, request)

    @app.post("/v1/images/edits")
    async def edits(request: Request) -> Response:
        return await desk.serve("edits", read_edit, request)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return responses.models(model)

    @app.get("/v1/models/{name}")
    async def one_model(name: str) -> dict[str, Any]:
        desk.check_model(name)
        return responses.model(model)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/ready")
    async def ready() -> dict[str, Any]:
        return responses.readiness(desk.check_ready())

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(desk.metrics(), media_type=_PROMETHEUS)

    return app
