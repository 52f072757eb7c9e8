"""Routes of the Responses API."""

from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from ..openapi import describe_body, describe_response
from .protocol import ResponsesRequest
from .serving import ResponsesServing

_MAX_SEQUENCE_NUMBER = 2**31


def add_responses_routes(app: FastAPI, serving: ResponsesServing) -> None:
    """Add the routes of the Responses API to an application."""
    streamed = describe_response("StoryResponse", stream=True)

    @app.post("/v1/responses", responses=streamed, openapi_extra=describe_body(ResponsesRequest))
    async def create_response(request: Request) -> Response:
        return await serving.create(request)

    @app.get("/v1/responses/{response_id}", responses=streamed)
    async def retrieve_response(
        request: Request,
        response_id: str,
        stream: bool = False,
        starting_after: Annotated[int, Query(ge=-1, le=_MAX_SEQUENCE_NUMBER)] = -1,
    ) -> Response:
        return await serving.retrieve(request, response_id, stream, starting_after)

    @app.delete("/v1/responses/{response_id}", responses=describe_response("Deleted"))
    async def delete_response(request: Request, response_id: str) -> dict[str, Any]:
        return await serving.delete(request, response_id)

    @app.post("/v1/responses/{response_id}/cancel", responses=describe_response("StoryResponse"))
    async def cancel_response(request: Request, response_id: str) -> Response:
        return await serving.cancel(request, response_id)
