"""Routes of the chat API."""

from fastapi import FastAPI, Request, Response

from ..openapi import describe_body, describe_response
from .protocol import ChatRequest
from .serving import ChatServing


def add_chat_routes(app: FastAPI, serving: ChatServing) -> None:
    """Add the route of the chat API to an application."""

    @app.post(
        "/v1/chat/completions",
        responses=describe_response("StoryChat", stream=True),
        openapi_extra=describe_body(ChatRequest),
    )
    async def create_chat_completion(request: Request) -> Response:
        return await serving.create(request)
