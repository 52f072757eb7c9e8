"""The OpenAPI document: our request models, and responses in the classes of OpenAI's client."""

import re
from collections.abc import Mapping
from functools import cache

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape
from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from .request_models import Json
from .response_builder import GenerationModel

Models = tuple[type[BaseModel], ...]

_REF = "#/components/schemas/{model}"
_DESCRIPTION = (
    "Answers in images and text. Speaks OpenAI's Responses, chat and Images APIs; the field and "
    "the events `interleave` are its own."
)
# Of each event of a stream; `data` is JSON, except for the `[DONE]` that ends a chat's.
_EVENT = {
    "type": "object",
    "required": ["data"],
    "properties": {"event": {"type": "string"}, "data": {"type": "string"}},
}


class ErrorModel(BaseModel):
    """Why a request failed."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of an error."""

    error: ErrorModel


ERRORS: dict[int | str, Json] = {"default": {"model": ErrorBody, "description": "An error"}}
"""The document's part on errors, of every route."""


def add_openapi_routes(
    app: FastAPI, requests: Models, has_keys: bool, page_headers: Mapping[str, str]
) -> None:
    """Serve an application's document at /openapi.json, and for readers at /docs, without scripts.

    `requests`: models of bodies.
    """

    @cache
    def document() -> Json:
        return _document(app, requests, has_keys)

    @cache
    def page() -> str:
        return _render(document())

    @app.get("/openapi.json", include_in_schema=False)
    def openapi() -> JSONResponse:  # in a thread: the classes take seconds
        return JSONResponse(document())

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(page(), headers=page_headers)


def describe_body(model: type[BaseModel], media_type: str = "application/json") -> Json:
    """The document's part on the body of a route that parses it without FastAPI."""
    content = {media_type: {"schema": _ref(model.__name__)}}
    return {"requestBody": {"required": True, "content": content}}


def describe_response(schema: str, stream: bool = False) -> dict[int | str, Json]:
    """The document's part on an answer in a class of OpenAI's; `schema`: its name."""
    content: Json = {"application/json": {"schema": _ref(schema)}}
    if stream:
        content["text/event-stream"] = {"schema": _EVENT}
    return {200: {"description": "As requested", "content": content}}


def describe_file(*media_types: str) -> dict[int | str, Json]:
    """The document's part on a route that answers with a file."""
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {200: {"description": "The file", "content": dict.fromkeys(media_types, schema)}}


IMAGE_FILE = describe_file("image/png", "image/jpeg", "image/webp")


def _ref(name: str) -> Json:
    return {"$ref": _REF.format(model=name)}


def _document(app: FastAPI, requests: Models, has_keys: bool) -> Json:
    document = get_openapi(
        title="Interleave Foundry", version=app.version, description=_DESCRIPTION, routes=app.routes
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(_schemas(requests))
    if has_keys:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


@cache
def _schemas(requests: Models) -> Json:
    from openai.types import ImagesResponse
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    interleave = (GenerationModel, ...)
    response = create_model("InterleavedResponse", __base__=Response, interleave=interleave)
    chat = create_model("InterleavedChat", __base__=ChatCompletion, interleave=interleave)
    image = create_model("InterleavedImage", __base__=ImagesResponse, interleave=interleave)
    models = [(model, "validation") for model in (*requests, response, chat, image)]
    _, schema = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    definitions: Json = schema["$defs"]
    return definitions


def _render(document: Json) -> str:
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = _prose
    return environment.get_template("api_page.html").render(document=document)


def _prose(text: str) -> Markup:
    """A description, with code between backticks."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))
