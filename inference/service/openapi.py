"""The OpenAPI document: requests as they are read, answers by the official client's classes."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from .chat.protocol import ChatRequest
from .responses import response_models
from .responses.protocol import ResponsesRequest

Json = dict[str, Any]

_REF = "#/components/schemas/{model}"
_TITLE = "Interleave Foundry"
_DESCRIPTION = (
    "Stories in pictures and text. Speaks OpenAI's Responses and chat APIs; the field and the "
    "events `interleave` are its own."
)
# Of each event of a stream; `data` is JSON, but for the `[DONE]` that ends a chat's.
_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
}


def describe(app: FastAPI, secured: bool) -> None:
    """Have an application serve its document at /openapi.json.

    Args:
        secured: API keys are required.
    """

    def document() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, secured)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def takes(model: type[BaseModel]) -> Json:
    """What a route that reads its body by itself says of it."""
    content = {"application/json": {"schema": _ref(model.__name__)}}
    return {"requestBody": {"required": True, "content": content}}


def gives(name: str, stream: bool = False) -> dict[int | str, Json]:
    """What a route answers. `name`: of a schema."""
    content: Json = {"application/json": {"schema": _ref(name)}}
    if stream:
        content["text/event-stream"] = {"schema": _EVENT}
    problem = {"application/json": {"schema": _ref(response_models.ErrorBody.__name__)}}
    return {
        200: {"description": "As asked for", "content": content},
        "default": {"description": "Refused", "content": problem},
    }


def _ref(name: str) -> Json:
    return {"$ref": _REF.format(model=name)}


def _document(app: FastAPI, secured: bool) -> Json:
    document = get_openapi(
        title=_TITLE, version=app.version, description=_DESCRIPTION, routes=app.routes
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(_schemas())
    if secured:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _schemas() -> Json:
    models = [(model, "validation") for model in (*_requests(), *_answers())]
    _, schema = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    found: Json = schema["$defs"]
    return found


def _requests() -> tuple[type[BaseModel], ...]:
    return ResponsesRequest, ChatRequest


def _answers() -> tuple[type[BaseModel], ...]:
    from openai.types import Model
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    story = create_model(
        "StoryResponse", __base__=Response, interleave=(response_models.GenerationModel, ...)
    )
    chat = create_model(
        "StoryChat", __base__=ChatCompletion, interleave=(response_models.GenerationModel, ...)
    )
    ours = (
        response_models.ErrorBody,
        response_models.ModelList,
        response_models.Deleted,
        response_models.Alive,
        response_models.Ready,
    )
    return story, chat, Model, *ours
