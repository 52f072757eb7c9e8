"""The OpenAPI document: our request models, and responses in the classes of OpenAI's client."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape
from pydantic import BaseModel, create_model
from pydantic.json_schema import models_json_schema

from .request_parsing import Json
from .responses.protocol import GenerationModel

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


class ModelList(BaseModel):
    """The served models."""

    object: Literal["list"]
    data: list[dict[str, Any]]


class Deleted(BaseModel):
    """A response that was deleted."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ItemList(BaseModel):
    """A page of the items of a request."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileList(ItemList):
    """A page of uploaded files."""


class Alive(BaseModel):
    """The process runs."""

    status: Literal["alive"]


class Ready(BaseModel):
    """Requests can be answered."""

    ready: Literal[True]
    versions: dict[str, str]


def add_openapi_routes(
    app: FastAPI, requests: Models, has_keys: bool, page_headers: Mapping[str, str]
) -> None:
    """Serve an application's document at /openapi.json, and for readers at /docs, without scripts.

    `requests`: models of bodies.
    """

    @cache
    def document() -> Json:
        return _document(app, requests, has_keys)

    def openapi(request: Request) -> JSONResponse:  # in a thread: the classes take seconds
        return JSONResponse(document())

    @cache
    def page() -> str:
        return _render(document())

    def docs(request: Request) -> HTMLResponse:
        return HTMLResponse(page(), headers=page_headers)

    app.add_route("/openapi.json", openapi, include_in_schema=False)
    app.add_route("/docs", docs, include_in_schema=False)


def describe_body(model: type[BaseModel], form_files: Sequence[str] = ()) -> Json:
    """The document's part on the body of a route that parses it without FastAPI.

    `form_files`: it is a form, which also has files of these names.
    """
    schema, media_type = _ref(model.__name__), "application/json"
    if form_files:
        schema, media_type = model.model_json_schema(), "multipart/form-data"
        files = {"type": "array", "items": {"type": "string", "format": "binary"}}
        schema["properties"] |= dict.fromkeys(form_files, files)
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def describe_response(schema: str, stream: bool = False) -> dict[int | str, Json]:
    """The document's part on what a route answers; `schema`: name of the model."""
    content: Json = {"application/json": {"schema": _ref(schema)}}
    if stream:
        content["text/event-stream"] = {"schema": _EVENT}
    error = {"application/json": {"schema": _ref(ErrorBody.__name__)}}
    return {
        200: {"description": "As requested", "content": content},
        "default": {"description": "An error", "content": error},
    }


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
    from openai.types import FileDeleted, FileObject, ImagesResponse, Model
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    interleave = (GenerationModel, ...)
    response = create_model("InterleavedResponse", __base__=Response, interleave=interleave)
    chat = create_model("InterleavedChat", __base__=ChatCompletion, interleave=interleave)
    image = create_model("InterleavedImage", __base__=ImagesResponse, interleave=interleave)
    answers = (
        response,
        chat,
        image,
        Model,
        ErrorBody,
        ModelList,
        Deleted,
        ItemList,
        FileObject,
        FileDeleted,
        FileList,
        Alive,
        Ready,
    )
    models = [(model, "validation") for model in (*requests, *answers)]
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
