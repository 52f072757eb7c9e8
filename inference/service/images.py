"""The Images API, `/v1/images/generations` and `/v1/images/edits`: the last image of a sequence.

The whole sequence is generated and stored, as for the other APIs; the answer's own field
`interleave` has its steps, and the id by which the Responses API has the rest of it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import Field

from schemas import BadImageError
from warehouse import EncodedImage

from ..http.errors import APIError, validate
from .openapi import describe_body, describe_response
from .request_models import (
    NO_MASK,
    TOOL_TYPE,
    Choices,
    ConversationTurn,
    ImageRef,
    ImageSettings,
    Json,
    Only,
    RequestOptions,
    Seed,
)
from .response_builder import ResponseBuilder, closing_text
from .run import GenerationRun, check_plan
from .serving import JSON, GenerationServing, load_images

_IMAGE_FIELDS = ("image", "image[]")
_MAX_FIELDS = 64
_NO_STREAM = "answers have one image; /v1/responses streams the sequence; leave it out"


class ImagesRequest(ImageSettings, strict=False):
    """A request for an image. Not strict: the values of forms are texts."""

    prompt: str
    model: str | None = None
    seed: Seed | None = Field(
        None, description="Equal requests with equal seeds give equal results"
    )

    # Of these, values that would change the result are an error.
    mask: Annotated[str | bytes | None, Only(NO_MASK)] = None
    n: Choices = None
    partial_images: Annotated[int | None, Only(_NO_STREAM, (0,))] = None
    response_format: Annotated[
        str | None, Only("answers carry their image; leave it out", ("b64_json",))
    ] = None
    stream: Annotated[bool | None, Only(_NO_STREAM, (False,))] = None
    style: Annotated[str | None, Only("say it in words; leave it out", ("vivid",))] = None

    # Accepted, without effect on the result.
    safety_identifier: str | None = None
    user: str | None = None

    def tool(self) -> Json:
        """The tool of a Response that has its images in the same format."""
        settings = self.model_dump(
            include={"output_format", "output_compression"}, exclude_none=True
        )
        return {"type": TOOL_TYPE, **settings}


class EditRequest(ImagesRequest):
    """A form that asks for an edit of images."""

    image: list[bytes] = Field(
        min_length=1, description="PNG, JPEG or WebP: files `image` or `image[]`"
    )


class ImagesServing(GenerationServing):
    """Generates and edits images."""

    def add_routes(self, app: FastAPI) -> None:
        described = describe_response("InterleavedImage")
        body = describe_body(ImagesRequest)
        add_create = app.post("/v1/images/generations", responses=described, openapi_extra=body)
        add_create(self.create_image)
        body = describe_body(EditRequest, "multipart/form-data")
        add_edit = app.post("/v1/images/edits", responses=described, openapi_extra=body)
        add_edit(self.edit_image)

    async def create_image(self, request: Request) -> Response:
        """Generate a sequence; answer with its last image."""
        api_request, body = await self.read(request, ImagesRequest)
        return await self._answer(request, api_request, body)

    async def edit_image(self, request: Request) -> Response:
        """Likewise, from images: one or several files `image` or `image[]` of a form."""
        self.check_room(request)
        most = self.parser.limits.pictures + 1  # one more, for an error that says the limit
        fields, uploads = await self.bodies.read_form(request, most, _MAX_FIELDS)
        images = [each.content for each in uploads if each.field in _IMAGE_FIELDS]
        others = {each.field: each.content for each in uploads if each.field not in _IMAGE_FIELDS}
        files = others | ({"image": images} if images else {})
        api_request = validate(fields | files, EditRequest)
        # Not as it was sent: the boundary between the parts is another one at each attempt.
        sizes = orjson.dumps([fields, list(map(len, images))])
        return await self._answer(request, api_request, b"".join([sizes, *images]), images)

    async def _answer(
        self,
        request: Request,
        api_request: ImagesRequest,
        body: bytes,
        images: Sequence[bytes] = (),
    ) -> Response:
        refs = [ImageRef(image, "image") for image in images]
        turn = ConversationTurn("user", [*refs, api_request.prompt])
        options, model = RequestOptions(seed=api_request.seed), api_request.model
        generation = await self.parser.parse([turn], model, options, "prompt")
        needs_image = partial(check_plan, image_param="prompt")
        run = await self.open(
            request, body, generation, model, needs_image, tools=[api_request.tool()]
        )
        await self.wait_ended(run, request)
        return Response(orjson.dumps(await _image_answer(run)), media_type=JSON)


async def _image_answer(run: GenerationRun) -> Json:
    """The body of a run that has ended with a sequence, or was cancelled."""
    builder = ResponseBuilder.replay(run)
    chosen = [step.chosen for step in builder.state.steps if step.chosen]
    if builder.status not in ("complete", "exhausted") or not chosen:
        reason = builder.error or closing_text(builder.state) or "the sequence has no image"
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        raise APIError(status, reason, "server_error", retry=False)
    last = chosen[-1]
    await load_images([last.image])
    entry = {"b64_json": await _encode(builder, last.image), "revised_prompt": last.prompt}
    return {
        "created": int(run.created_at),
        "background": "opaque",
        "data": [entry],
        "output_format": builder.image_tool.output_format or last.image.mime.partition("/")[2],
        "usage": builder.usage.image(),
        "interleave": builder.interleave(),
    }


async def _encode(builder: ResponseBuilder, image: EncodedImage) -> str:
    try:
        return await asyncio.to_thread(builder.image_tool.encode, image)
    except BadImageError:
        raise APIError(HTTPStatus.GONE, "the image of this answer is damaged") from None
