"""OpenAI's images endpoints, and those for operators."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from . import answers
from .desk import Desk
from .doorkeeper import Doorkeeper
from .errors import Refusal, went_wrong
from .fleet import Readiness, Studio
from .models import ServedModel
from .requests import read_edit, read_generation
from .settings import ImagesServerSettings

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def make_app(
    model: ServedModel,
    studio: Studio,
    settings: ImagesServerSettings,
    key: str | None = None,
    tell: Callable[[Readiness], object] = lambda seen: None,
) -> FastAPI:
    """The server's application.

    Args:
        key: what callers have to know; None: nothing.
        tell: hears whenever readiness changes.
    """
    desk = Desk(model, studio, settings, tell)
    # Pages of documentation would load scripts from elsewhere.
    app = FastAPI(lifespan=desk.open, openapi_url=None)
    app.add_middleware(Doorkeeper, key=key, most_bytes=settings.allowed.bytes)
    app.add_exception_handler(HTTPException, _no_such_endpoint)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(Exception, _failed)

    @app.post("/v1/images/generations")
    async def generations(request: Request) -> Response:
        return await desk.serve("generations", read_generation, request)

    @app.post("/v1/images/edits")
    async def edits(request: Request) -> Response:
        return await desk.serve("edits", read_edit, request)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return answers.models(model)

    @app.get("/v1/models/{name}")
    async def one_model(name: str) -> dict[str, Any]:
        desk.check_model(name)
        return answers.model(model)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/ready")
    async def ready() -> dict[str, Any]:
        return answers.readiness(desk.check_ready())

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(desk.metrics(), media_type=_PROMETHEUS)

    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _no_such_endpoint(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return Refusal(HTTPStatus(error.status_code), message).response()


async def _failed(request: Request, error: Exception) -> Response:
    return went_wrong().response()
