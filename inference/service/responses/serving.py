"""The endpoints of the Responses API."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from schemas import BadImageError
from warehouse import EncodedImage

from ...http.errors import APIError, bad_request
from ..openapi import describe_body, describe_response
from ..protocol import DEFAULT_MODEL, RequestOptions
from ..request_parsing import ParsedRequest
from ..run import GenerationRun
from ..serving import JSON, GenerationServing, missing_images_are_gone, owner_of, parse_body
from .protocol import ResponsesRequest
from .streaming_events import Images, ResponseEventBuilder, encode_events, encode_json

Json = dict[str, Any]

_MAX_SEQUENCE_NUMBER = 2**31


class ResponsesServing(GenerationServing):
    """Creates, finds, cancels and deletes Responses."""

    def add_routes(self, app: FastAPI) -> None:
        """Add the routes of the Responses API to an application."""
        add, path = app.add_api_route, "/v1/responses/{response_id}"
        streamed = describe_response("StoryResponse", stream=True)
        body = describe_body(ResponsesRequest)
        add(
            "/v1/responses",
            self.create_response,
            methods=["POST"],
            responses=streamed,
            openapi_extra=body,
        )
        add(path, self.retrieve_response, methods=["GET"], responses=streamed)
        deleted, cancelled = describe_response("Deleted"), describe_response("StoryResponse")
        add(path, self.delete_response, methods=["DELETE"], responses=deleted)
        add(f"{path}/cancel", self.cancel_response, methods=["POST"], responses=cancelled)

    async def create_response(self, request: Request) -> Response:
        """Start a request; answer with its stream, its end, or at once if in the background."""
        body = await self.read_body(request)
        api_request = await parse_body(body, ResponsesRequest)
        parsed = await self._parse(api_request, owner_of(request))
        run = await self.open(parsed, request, body)
        if api_request.stream:
            return await self.stream(run, _chunks(run))
        if not parsed.background:
            await self.wait_ended(run, request)
        return await self._response(run)

    async def retrieve_response(
        self,
        request: Request,
        response_id: str,
        stream: bool = False,
        starting_after: Annotated[int, Query(ge=-1, le=_MAX_SEQUENCE_NUMBER)] = -1,
    ) -> Response:
        """A Response, or its stream after the event with number `starting_after`."""
        run = await self._find(response_id, owner_of(request))
        if stream:
            return await self.stream(run, _chunks(run, starting_after))
        return await self._response(run)

    async def cancel_response(self, request: Request, response_id: str) -> Response:
        """Cancel a request if it waits or runs; answer with its Response."""
        await self.manager.cancel(response_id, owner_of(request))
        return await self.retrieve_response(request, response_id)

    async def delete_response(self, request: Request, response_id: str) -> Json:
        """Delete a Response and the content of its generation."""
        if not await self.manager.delete(response_id, owner_of(request)):
            raise _unknown(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def _parse(self, request: ResponsesRequest, owner: str) -> ParsedRequest:
        if request.background and request.store is False:
            raise bad_request("a request in the background has to be stored", "store")
        generation = await self.parser.parse(
            request.turns(),
            request.model,
            request.interleave or RequestOptions(),
            "input",
            await self._previous_images(request.previous_response_id, owner),
        )
        background, store = bool(request.background), request.store is not False
        fields = {
            "created_at": int(time.time()),
            "model": request.model or DEFAULT_MODEL,
            "background": background,
            "instructions": request.instructions,
            "metadata": request.metadata or {},
            "previous_response_id": request.previous_response_id,
            "store": store,
        }
        return ParsedRequest(generation, fields, background, store)

    async def _previous_images(
        self, response_id: str | None, owner: str
    ) -> tuple[EncodedImage, ...]:
        """The last image of the response that a request continues, if it has one."""
        if response_id is None:
            return ()
        run = await self.manager.find(response_id, owner)
        if run is None:
            raise bad_request(
                f"there is no response {response_id}",
                "previous_response_id",
                "previous_response_not_found",
            )
        builder = run.build_response()
        if not builder.has_ended:
            raise bad_request(f"{response_id} has not ended yet", "previous_response_id")
        try:
            return await asyncio.to_thread(_loaded, builder.state.images[-1:])
        except BadImageError:
            message = "the last image of that response is missing"
            raise bad_request(message, "previous_response_id") from None

    async def _find(self, response_id: str, owner: str) -> GenerationRun:
        run = await self.manager.find(response_id, owner)
        if run is None:
            raise _unknown(response_id)
        return run

    async def _response(self, run: GenerationRun) -> Response:
        builder = run.build_response()
        images: Images = builder.images()
        with missing_images_are_gone():
            await asyncio.to_thread(_loaded, images.values())
        return Response(await encode_json(builder.to_json(), images), media_type=JSON)


async def _chunks(run: GenerationRun, after: int = -1) -> AsyncIterator[bytes]:
    """The run's events as those of the API."""
    builder = ResponseEventBuilder(run.request)
    yield await encode_events(builder.opening_events(), after)
    async for event in run.follow():
        yield await encode_events(builder.events_for(event), after)


def _loaded(images: Iterable[EncodedImage]) -> tuple[EncodedImage, ...]:
    """Images whose bytes have been read; see `LazyImage`."""
    loaded = tuple(images)
    for image in loaded:
        _ = image.data
    return loaded


def _unknown(response_id: str) -> APIError:
    message = f"there is no response {response_id}"
    return APIError(HTTPStatus.NOT_FOUND, message, "not_found", "response_id")
