"""The service's endpoints: OpenAI's, and those for operators."""

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from schemas import FoundryError

from ..http.auth import AuthMiddleware, Keys, is_health_path
from ..http.errors import APIError, install_error_handlers
from .chat.protocol import ChatRequest
from .handlers import Handlers, owner_of
from .middleware import ConnectionCounter, RequestContextMiddleware
from .openapi import describe, gives, takes
from .request_options import MODELS
from .request_parsing import critic_of
from .responses.protocol import ResponsesRequest
from .service import Service
from .studio.pages import studio_router

if TYPE_CHECKING:
    from openai.types import Model

_SOON_SECONDS = 5
_READY_SECONDS = 10


def make_app(service: Service, keys: Keys) -> FastAPI:
    """The application of a service that is open.

    Args:
        keys: what callers have to know.
    """
    # Pages of documentation would load scripts from elsewhere.
    app = FastAPI(docs_url=None, redoc_url=None, version="1")
    connections = ConnectionCounter(service.settings.connections)
    app.add_middleware(
        AuthMiddleware,
        keys=keys,
        max_bytes=service.settings.limits.bytes,
        is_public=_is_public,
        local_only=True,
    )
    app.add_middleware(
        RequestContextMiddleware, connections=connections, count=service.metrics.count_response
    )
    install_error_handlers(app)
    _add_stories(app, Handlers(service.home, service.desk, service.usual, service.settings))
    _add_models(app)
    _add_operations(app, service, connections)
    app.include_router(studio_router(service.home, service.library, owner_of))
    describe(app, keys.required)
    return app


def _add_stories(app: FastAPI, doors: Handlers) -> None:
    story, chat = gives("StoryResponse", stream=True), gives("StoryChat", stream=True)

    @app.post("/v1/responses", responses=story, openapi_extra=takes(ResponsesRequest))
    async def create_response(request: Request) -> Response:
        return await doors.create(request)

    @app.get("/v1/responses/{response_id}", responses=story)
    async def retrieve_response(
        request: Request,
        response_id: str,
        stream: bool = False,
        starting_after: Annotated[int, Query(ge=-1, le=2**31)] = -1,
    ) -> Response:
        return await doors.retrieve(request, response_id, stream, starting_after)

    @app.delete("/v1/responses/{response_id}", responses=gives("Deleted"))
    async def delete_response(request: Request, response_id: str) -> dict[str, Any]:
        return await doors.delete(request, response_id)

    @app.post("/v1/responses/{response_id}/cancel", responses=gives("StoryResponse"))
    async def cancel_response(request: Request, response_id: str) -> Response:
        return await doors.cancel(request, response_id)

    @app.post("/v1/chat/completions", responses=chat, openapi_extra=takes(ChatRequest))
    async def create_chat_completion(request: Request) -> Response:
        return await doors.chat(request)


def _add_models(app: FastAPI) -> None:
    @app.get("/v1/models", responses=gives("ModelList"))
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(name).model_dump() for name in MODELS]}

    @app.get("/v1/models/{name}", responses=gives("Model"))
    async def retrieve_model(name: str) -> dict[str, Any]:
        critic_of(name)
        return _model(name).model_dump()


def _add_operations(app: FastAPI, service: Service, connections: ConnectionCounter) -> None:
    @app.get("/health", responses=gives("Alive"))
    async def health() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/ready", responses=gives("Ready"))
    async def ready() -> dict[str, Any]:
        return {"ready": True, "versions": await _versions(service)}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return service.metrics.response(service.desk.queue, connections.open)


async def _versions(service: Service) -> dict[str, str]:
    try:
        if service.desk.queue.closed:
            raise FoundryError("the service is being stopped")
        async with asyncio.timeout(_READY_SECONDS):
            await service.casting.check()
            return (await service.casting.cast(None)).names
    except (FoundryError, TimeoutError) as error:
        reason = str(error) or "no players were found in time"
        raise APIError(
            HTTPStatus.SERVICE_UNAVAILABLE, reason, "not_ready", retry_after=_SOON_SECONDS
        ) from None


def _is_public(path: str) -> bool:
    """Paths that need no key: the studio's page has none before somebody types it in."""
    return (
        is_health_path(path)
        or path in ("/", "/favicon.ico", "/openapi.json")
        or path.startswith("/studio/static/")
    )


def _model(name: str) -> "Model":
    from openai.types import Model

    return Model(id=name, object="model", created=0, owned_by="interleave-foundry")
