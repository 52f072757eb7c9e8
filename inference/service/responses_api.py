"""The endpoints of the Responses API."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Annotated

import orjson
from fastapi import FastAPI, Query, Request, Response

from schemas import BadImageError
from warehouse import EncodedImage, ImageStore

from ..events import LazyImage
from ..generation.requests import GenerationRequest
from ..http.errors import APIError, bad_request, not_found
from .files import FileStore
from .openapi import describe_body, describe_response
from .request_models import ConversationTurn, ImageRef, Json, RequestOptions
from .request_parsing import current_turn
from .response_builder import ResponseBuilder
from .responses_request import ResponsesRequest, stored_message, stored_text
from .run import GenerationRun
from .serving import JSON, Deleted, GenerationServing, Order, Page, load_images, owner_of, page_of
from .streaming_events import EventsHeader, ResponseEventEncoder

_MAX_SEQUENCE_NUMBER = 2**31
_WITH_IMAGES = "message.input_image.image_url"  # value of `include` that asks for images


@dataclass(frozen=True)
class ResponsesServing(GenerationServing):
    """Creates, finds, cancels and deletes Responses."""

    files: FileStore

    def add_routes(self, app: FastAPI) -> None:
        path = "/v1/responses/{response_id}"
        response = describe_response("InterleavedResponse")
        streamed = describe_response("InterleavedResponse", stream=True)
        body = describe_body(ResponsesRequest)
        app.post("/v1/responses", responses=streamed, openapi_extra=body)(self.create_response)
        app.get(path, responses=streamed)(self.retrieve_response)
        app.delete(path)(self.delete_response)
        app.post(f"{path}/cancel", responses=response)(self.cancel_response)
        app.get(f"{path}/input_items", responses={200: {"model": Page}})(self.list_input_items)

    async def create_response(self, request: Request, own_events: EventsHeader = False) -> Response:
        """Start a request; answer with its stream, its end, or at once if in the background."""
        api_request, body = await self.read(request, ResponsesRequest)
        run = await self._open(request, api_request, body)
        if api_request.stream:
            return await self.stream(run, _chunks(run, own_events=own_events))
        if not api_request.background:
            await self.wait_ended(run, request)
        return await self._response(run)

    async def retrieve_response(
        self,
        request: Request,
        response_id: str,
        stream: bool = False,
        starting_after: Annotated[int, Query(ge=-1, le=_MAX_SEQUENCE_NUMBER)] = -1,
        own_events: EventsHeader = False,
    ) -> Response:
        """A Response, or its stream after the event with number `starting_after`."""
        run = await self._find(request, response_id)
        if stream:
            return await self.stream(run, _chunks(run, starting_after, own_events))
        return await self._response(run)

    async def cancel_response(self, request: Request, response_id: str) -> Response:
        """Cancel a request if it waits or runs; answer with its Response."""
        await self.manager.cancel(response_id, owner_of(request))
        return await self.retrieve_response(request, response_id)

    async def delete_response(self, request: Request, response_id: str) -> Deleted:
        """Delete a Response and the content of its generation."""
        if not await self.manager.delete(response_id, owner_of(request)):
            raise not_found(f"there is no response {response_id}", "response_id")
        return Deleted(id=response_id, object="response")

    async def list_input_items(
        self,
        request: Request,
        response_id: str,
        after: Annotated[str | None, Query(max_length=200)] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Order = "desc",
        include: Annotated[list[str] | None, Query()] = None,
        include_list: Annotated[list[str] | None, Query(alias="include[]")] = None,
    ) -> Response:
        """What a Response was made from; `include`: images, which are left out otherwise."""
        run = await self._find(request, response_id)
        wanted = _WITH_IMAGES in [*(include or ()), *(include_list or ())]
        images = self.manager.home.images if wanted else None
        items = _items(run) if order == "asc" else _items(run)[::-1]
        page = page_of(items, after, limit, "item")
        try:
            page.data = await asyncio.to_thread(_with_images, page.data, images)
        except BadImageError:
            raise APIError(HTTPStatus.GONE, "an image of this request is missing") from None
        return Response(page.model_dump_json(), media_type=JSON)

    async def _find(self, request: Request, response_id: str) -> GenerationRun:
        run = await self.manager.find(response_id, owner_of(request))
        if run is None:
            raise not_found(f"there is no response {response_id}", "response_id")
        return run

    async def _open(self, request: Request, sent: ResponsesRequest, body: bytes) -> GenerationRun:
        if sent.background and sent.store is False:
            raise bad_request("a request in the background has to be stored", "store")
        turns, owner = sent.turns(), owner_of(request)
        generation = await self.parser.parse(
            turns,
            sent.model,
            sent.interleave or RequestOptions(),
            "input",
            await self._previous_images(sent.previous_response_id, owner),
            partial(self._load_stored, owner),
        )
        sent.image_tool.check_images(len(generation.images))
        return await self.open(
            request,
            body,
            generation,
            sent.model,
            sent.plan_check(),
            input=sent.stored_items(_images_by_place(turns, generation)),
            background=bool(sent.background),
            instructions=sent.instructions,
            max_output_tokens=sent.max_output_tokens,
            metadata=sent.metadata or {},
            previous_response_id=sent.previous_response_id,
            store=sent.store is not False,
            tool_choice=_choice(sent),
            tools=[tool.model_dump(exclude_none=True) for tool in sent.tools or ()],
        )

    async def _previous_images(
        self, response_id: str | None, owner: str
    ) -> tuple[EncodedImage, ...]:
        """The last image of the response that a request continues, else of its own request."""
        if response_id is None:
            return ()
        param = "previous_response_id"
        run = await self.manager.find(response_id, owner)
        if run is None:
            message = f"there is no response {response_id}"
            raise bad_request(message, param, "previous_response_not_found")
        builder = ResponseBuilder.replay(run)
        if builder.state.ending is None:
            raise bad_request(f"{response_id} has not ended yet", param)
        images = builder.state.images[-1:] or run.request.images[-1:]
        await _load(images, param, "the last image of that response is missing")
        return tuple(images)

    async def _load_stored(self, owner: str, ref: ImageRef) -> EncodedImage:
        """An uploaded file, or an image of an earlier response, by its id; APIError: none."""
        if ref.kind == "call":
            return await self._image_of_call(owner, str(ref.source), ref.param)
        content = await asyncio.to_thread(self.files.content, str(ref.source), owner)
        if content is None:
            message = f"{ref.param}: there is no file {ref.source!s}"
            raise bad_request(message, ref.param, "file_not_found")
        return EncodedImage(content)

    async def _image_of_call(self, owner: str, call_id: str, param: str) -> EncodedImage:
        generation_id, _, number = call_id.removeprefix("ig_").rpartition("_")
        run = await self.manager.find(f"resp_{generation_id}", owner)
        steps = ResponseBuilder.replay(run).state.steps if run else []
        images = [step.image for step in steps if step.image and str(step.number) == number]
        if not images:
            message = f"{param}: no stored response has an image {call_id}; send its result instead"
            raise bad_request(message, param, "image_not_found")
        await _load(images, param, f"{param}: the image of {call_id} is missing")
        return images[0]

    async def _response(self, run: GenerationRun) -> Response:
        builder = ResponseBuilder.replay(run)
        builder.queue = self.manager.queue_place(run)
        await load_images(builder.state.images)
        content = await asyncio.to_thread(lambda: orjson.dumps(builder.response(with_images=True)))
        return Response(content, media_type=JSON)


async def _load(images: Sequence[EncodedImage], param: str, message: str) -> None:
    """Read stored images; an APIError with the message if one is missing."""
    try:
        await load_images(images)
    except APIError:
        raise bad_request(message, param) from None


def _choice(request: ResponsesRequest) -> str | Json:
    """The tool choice, as a response repeats it."""
    choice = request.tool_choice or "auto"
    return choice if isinstance(choice, str) else choice.model_dump()


def _images_by_place(
    turns: Sequence[ConversationTurn], generation: GenerationRequest
) -> dict[str, str]:
    """Place in the request -> sha256 of the images that the generation begins with."""
    refs = [part for part in current_turn(turns) if isinstance(part, ImageRef)]
    images = generation.images[len(generation.images) - len(refs) :]
    return {ref.param: image.sha256 for ref, image in zip(refs, images, strict=True)}


async def _chunks(
    run: GenerationRun, after: int = -1, own_events: bool = False
) -> AsyncIterator[bytes]:
    """The run's events as those of the API; see `ResponseEventEncoder`."""
    encoder = ResponseEventEncoder(run, after, own_events)
    yield encoder.opening()
    async for event in run.follow():
        yield await encoder.encode(event)


def _items(run: GenerationRun) -> list[Json]:
    """What a Response was made from, with ids; a request of another API is one message."""
    image = {"type": "input_image", "detail": "auto", "file_id": None}
    images = [image | {"image_url": sha256} for sha256 in run.input_images]
    message = stored_message("user", [stored_text("user", run.request.text), *images])
    prefix = f"msg_{run.request.generation_id}_input"
    items = enumerate(run.fields.get("input") or [message])
    return [item | {"id": item.get("id") or f"{prefix}_{number}"} for number, item in items]


def _with_images(items: list[Json], images: ImageStore | None) -> list[Json]:
    """Stored items with their images, or null; raises BadImageError if one is missing."""

    def load(sha256: str | None) -> LazyImage | None:
        return LazyImage(images, sha256) if images and sha256 else None

    def part_with_image(part: Json) -> Json:
        if part["type"] != "input_image":
            return part
        image = load(part["image_url"])
        return part | {"image_url": image and image.data_url}

    def item_with_images(item: Json) -> Json:
        if item["type"] == "image_generation_call":
            image = load(item["result"])
            return item | {"result": image and image.data_url.partition(",")[2]}
        return item | {"content": [part_with_image(part) for part in item["content"]]}

    return [item_with_images(item) for item in items]
