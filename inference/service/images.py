"""The Images API, `/v1/images/generations` and `/v1/images/edits`: the last image of a sequence.

The whole sequence is generated and stored, as for the other APIs; the answer's own field
`interleave` has its steps, and the id by which the Responses API has the rest of it.
"""

import asyncio
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import Field

from schemas import BadImageError
from warehouse import EncodedImage

from ..generation.requests import GenerationRequest
from ..http.body_reader import Upload
from ..http.errors import UNSUPPORTED, APIError, bad_request, validate
from .accepted_values import NO_MASK, TOOL_TYPE, Choices, ImageSettings, Only
from .openapi import describe_body, describe_response
from .request_parsing import (
    DEFAULT_MODEL,
    ConversationTurn,
    ImageRef,
    Json,
    RequestOptions,
    Seed,
    plan_requirements,
)
from .responses.response_builder import ResponseBuilder, closing_text
from .run import GenerationRun
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
    mask: Annotated[str | None, Only(NO_MASK)] = None
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


class ImagesServing(GenerationServing):
    """Generates and edits images."""

    def add_routes(self, app: FastAPI) -> None:
        described = describe_response("InterleavedImage")
        body = describe_body(ImagesRequest)
        add_create = app.post("/v1/images/generations", responses=described, openapi_extra=body)
        add_create(self.rate_limited(self.create_image))
        body = describe_body(ImagesRequest, form_files=_IMAGE_FIELDS)
        add_edit = app.post("/v1/images/edits", responses=described, openapi_extra=body)
        add_edit(self.rate_limited(self.edit_image))

    async def create_image(self, request: Request) -> Response:
        """Generate a sequence; answer with its last image."""
        api_request, body = await self.read(request, ImagesRequest)
        return await self._answer(request, api_request, body)

    async def edit_image(self, request: Request) -> Response:
        """Likewise, from images: one or several files `image` or `image[]` of a form."""
        self.check_room(request)
        most = self.parser.limits.pictures + 1  # one more, for an error that says the limit
        fields, uploads = await self.bodies.read_form(request, most, _MAX_FIELDS)
        for upload in uploads:
            _check_field(upload.field)
        api_request = validate(fields, ImagesRequest)
        if not uploads:
            message = "image is missing: send the image to edit, or several, as files"
            raise bad_request(message, "image", "missing_required_parameter")
        # Not as it was sent: the boundary between the parts is another one at each attempt.
        sizes = orjson.dumps([fields, [len(each.content) for each in uploads]])
        body = b"".join([sizes, *(each.content for each in uploads)])
        return await self._answer(request, api_request, body, uploads)

    async def _answer(
        self,
        request: Request,
        api_request: ImagesRequest,
        body: bytes,
        uploads: Sequence[Upload] = (),
    ) -> Response:
        run = await self.open(request, body, *await self._parse(api_request, uploads))
        await self.wait_ended(run, request)
        return Response(orjson.dumps(await _image_answer(run)), media_type=JSON)

    async def _parse(
        self, request: ImagesRequest, uploads: Sequence[Upload]
    ) -> tuple[GenerationRequest, Json]:
        refs = [ImageRef(each.content, each.field) for each in uploads]
        turn = ConversationTurn("user", [*refs, request.prompt])
        options = RequestOptions(seed=request.seed)
        generation = await self.parser.parse([turn], request.model, options, "prompt")
        fields = {
            "created_at": int(time.time()),
            "model": request.model or DEFAULT_MODEL,
            "background": False,
            "metadata": {},
            "store": True,
            "requirements": plan_requirements(image_param="prompt"),
            "tools": [request.tool()],
        }
        return generation, fields


async def _image_answer(run: GenerationRun) -> Json:
    """The body of a run that has ended with a sequence, or was cancelled."""
    builder = run.build_response()
    chosen = [step.chosen for step in builder.state.steps if step.chosen]
    if builder.status not in ("complete", "exhausted") or not chosen:
        reason = builder.error or closing_text(builder.state) or "the sequence has no image"
        status = HTTPStatus.INTERNAL_SERVER_ERROR
        raise APIError(status, reason, "server_error", retry=False)
    last = chosen[-1]
    await load_images([last.image])
    entry = {"b64_json": await _encode(builder, last.image), "revised_prompt": last.prompt}
    return {
        "created": int(run.stored.created_at),
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


def _check_field(name: str) -> None:
    """Raise APIError unless a form may have a file of that name."""
    if name == "mask":
        raise bad_request(f"mask: it is not supported here: {NO_MASK}", "mask", UNSUPPORTED)
    if name not in _IMAGE_FIELDS:
        message = f"unknown file {name}; known files: {', '.join(_IMAGE_FIELDS)}"
        raise bad_request(message, name, "unknown_parameter")
