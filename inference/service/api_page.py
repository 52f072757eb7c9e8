"""The page /docs: the OpenAPI document for readers, without scripts."""

import re
from collections.abc import Callable
from functools import cache

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from .request_parsing import Json
from .studio.router import PAGE_HEADERS


def add_api_page(app: FastAPI, document: Callable[[], Json]) -> None:
    """Serve the page of an application's OpenAPI document."""

    @cache
    def page() -> str:
        return _render(document())

    def docs(request: Request) -> HTMLResponse:  # in a thread: the document takes seconds
        return HTMLResponse(page(), headers=PAGE_HEADERS)

    app.add_route("/docs", docs, include_in_schema=False)


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
