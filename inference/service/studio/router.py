"""Routes of the studio: the page and its files, what may be requested, earlier responses."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import AwareDatetime, BaseModel, Field

from schemas import BadImageError, FoundryError
from warehouse import ImageStore
from warehouse.images import UPLOAD_FORMATS

from ...generation.files import generation_html, generation_markdown, generation_zip
from ...generation.requests import GenerationOptions
from ...generation.trajectory_view import TrajectoryView
from ...http.errors import APIError, not_found, unavailable
from ...roles import max_reference_images
from ...settings import LoopSettings
from ..openapi import IMAGE_FILE, describe_file
from ..request_manager import RequestManager
from ..request_parsing import DEFAULT_MODEL, MODELS, available_models
from ..response_builder import ResponseBuilder
from ..response_store import ResponseStore
from ..run import GenerationRun
from ..serving import SANDBOX_HEADERS, owner_of

STATIC_FOLDER = FilePath(__file__).parent / "static"

_PAGE_SIZE = 24
# By name: no other name reaches the file system.
_STATIC_FILES = {
    path.relative_to(STATIC_FOLDER).as_posix(): path
    for path in STATIC_FOLDER.rglob("*")
    if path.is_file()
}
# Nothing from other hosts and nothing inline; pictures may be data URIs.
_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # files of different versions do not fit each other
}
# A hash always names the same image; shared caches must not give it to holders of other keys.
_IMAGE_HEADERS = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Authorization"}

FileType = Literal["html", "md", "zip"]


ResponseId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]

_EXPORTS: dict[FileType, tuple[str, Callable[[TrajectoryView], str | bytes]]] = {
    "html": ("text/html", generation_html),
    "md": ("text/markdown", generation_markdown),
    "zip": ("application/zip", generation_zip),
}


class GenerationHead(BaseModel):
    """An earlier response in short."""

    id: str = Field(description="Id of the response")
    text: str = Field(description="The request's text")
    created_at: AwareDatetime = Field(description="When it was requested, UTC")
    status: str = Field(description="How it ended, or `queued`")


class GenerationSummary(GenerationHead):
    """An entry in the list of earlier responses."""

    cover: str | None = Field(description="sha256 of its last image; null: it has none")
    images: int = Field(description="Number of its images")
    model: str = Field(description="The request's model, which says who answered")
    reason: str | None = Field(description="Why it was refused, or failed; null: it was not")


class GenerationList(BaseModel):
    """A page of earlier responses, newest first."""

    generations: list[GenerationSummary]
    total: int = Field(description="Number of all responses that were found")
    next_offset: int | None = Field(description="Offset of the next page; null: there is none")


class StoredGeneration(GenerationHead):
    """An earlier response, without the bytes of its images."""

    input_images: list[str] = Field(description="sha256 of the input images")
    follows: GenerationHead | None = Field(
        description="The response of its `previous_response_id`; null: none, or it was deleted"
    )
    response: dict[str, Any] = Field(description="The Response, with its field `interleave`")


class StudioModel(BaseModel):
    """A choice of agents."""

    id: str = Field(description="Value of a request's `model`")
    title: str
    description: str
    compared: bool = Field(description="It is a column of a comparison of agents")


class StudioLimits(BaseModel):
    """Limits of a request; a service rejects what exceeds them."""

    text: int = Field(description="Characters")
    images: int
    image_bytes: int = Field(description="Of an image")
    pixels: int = Field(description="Of an image")
    bytes: int = Field(description="Of the body")
    t_max: int
    candidates: int
    max_steps: int


class StudioSettings(BaseModel):
    """What a request may ask for."""

    models: list[StudioModel] = Field(description="Those that are available")
    conditioning: list[Literal["last", "all"]] = Field(description="What the generator can use")
    defaults: GenerationOptions = Field(description="Options that a request leaves out")
    limits: StudioLimits
    image_types: list[str] = Field(description="Media types of input images")


def add_studio_routes(app: FastAPI, manager: RequestManager, defaults: LoopSettings) -> None:
    """The page and its files, which need no key, and the data of responses."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return await static_file("index.html")

    @app.get("/studio/static/{name:path}", include_in_schema=False)
    async def static_file(name: str) -> Response:
        if name not in _STATIC_FILES:
            raise not_found("This file doesn't exist.")
        return FileResponse(_STATIC_FILES[name], headers=PAGE_HEADERS)

    app.include_router(_settings_router(manager, defaults))
    app.include_router(_data_router(manager.home.images, manager.store))


def _settings_router(manager: RequestManager, defaults: LoopSettings) -> APIRouter:
    """The route, which needs no key: it says no more than the OpenAPI document and `/ready`."""
    router = APIRouter(prefix="/studio", tags=["studio"])
    options = GenerationOptions.model_validate(defaults.model_dump())

    @router.get("/settings")
    async def settings() -> StudioSettings:
        """Limits, defaults, and the agents and options that are available."""
        try:
            names = available_models(await manager.resolver.critics())
            roles = await manager.resolver.resolve()
        except FoundryError as error:
            raise unavailable(str(error), "not_ready") from error
        takes = await asyncio.to_thread(max_reference_images, roles.generator)
        return StudioSettings(
            models=[
                StudioModel(id=name, compared=name != DEFAULT_MODEL, **MODELS[name]._asdict())
                for name in names
            ],
            conditioning=["last"] if takes == 1 else ["last", "all"],
            defaults=options,
            limits=_limits(manager),
            image_types=[f"image/{name.lower()}" for name in UPLOAD_FORMATS],
        )

    return router


def _limits(manager: RequestManager) -> StudioLimits:
    limits = manager.settings.limits
    return StudioLimits(
        images=limits.pictures,
        image_bytes=limits.picture_bytes,
        max_steps=limits.steps,
        **limits.model_dump(include={"text", "pixels", "bytes", "t_max", "candidates"}),
    )


def _data_router(images: ImageStore, store: ResponseStore) -> APIRouter:
    router = APIRouter(prefix="/studio", tags=["studio"])

    def find(request: Request, response_id: str) -> GenerationRun:
        stored = store.get(response_id, owner_of(request))
        if stored is None:
            raise not_found("This response doesn't exist, or it was deleted.")
        return stored

    @router.get("/generations")
    def generations(
        request: Request,
        query: Annotated[str, Query(max_length=200)] = "",
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    ) -> GenerationList:
        """Earlier responses whose requests contain all words of `query`, newest first."""
        found = store.search(owner_of(request), query, _PAGE_SIZE + 1, offset)
        next_offset = offset + _PAGE_SIZE if len(found) > _PAGE_SIZE else None
        summaries = [_summary(stored) for stored in found[:_PAGE_SIZE]]
        total = store.count(owner_of(request), query)
        return GenerationList(generations=summaries, total=total, next_offset=next_offset)

    @router.get(
        "/generations/{response_id}.{ending}",
        response_class=Response,
        responses=describe_file("text/html", "text/markdown", "application/zip"),
    )
    def export(request: Request, response_id: ResponseId, ending: FileType) -> Response:
        """A response as one HTML file, as Markdown, or as a ZIP of both with its images."""
        return _download(find(request, response_id), ending)

    @router.get("/generations/{response_id}")
    def generation(request: Request, response_id: ResponseId) -> StoredGeneration:
        """An earlier response."""
        stored = find(request, response_id)
        response = ResponseBuilder.replay(stored).response()
        previous = store.get(stored.fields.get("previous_response_id") or "", stored.owner)
        follows = GenerationHead(**_fields(previous)) if previous else None
        return StoredGeneration(
            **_fields(stored), input_images=stored.input_images, follows=follows, response=response
        )

    @router.get(
        "/generations/{response_id}/pictures/{sha256}",
        response_class=Response,
        responses=IMAGE_FILE,
    )
    def image(request: Request, response_id: ResponseId, sha256: Sha256) -> Response:
        """An image that was given with a request, or generated for it."""
        stored = find(request, response_id)
        generated = (image.sha256 for image in stored.generated_images)
        if sha256 not in {*stored.input_images, *generated}:
            raise not_found("This response has no such image.")
        return image_response(images, sha256)

    return router


def image_response(images: ImageStore, sha256: str) -> Response:
    """A stored image.

    Raises:
        APIError: it is missing or damaged (404).
    """
    try:
        image = images.get(sha256)
    except BadImageError as error:
        raise not_found("This image doesn't exist.") from error
    return Response(image.data, media_type=image.mime, headers=_IMAGE_HEADERS)


def _summary(stored: GenerationRun) -> GenerationSummary:
    builder = ResponseBuilder.replay(stored)
    state, scope = builder.state, builder.state.scope
    cover = state.images[-1].sha256 if state.images else None
    reason = (scope and scope.refusal) or builder.error
    model = stored.fields.get("model") or DEFAULT_MODEL
    return GenerationSummary(
        **_fields(stored),
        cover=cover,
        images=len(state.images),
        model=model,
        reason=reason if stored.status in ("refused", "failed") else None,
    )


def _fields(stored: GenerationRun) -> dict[str, Any]:
    created_at = datetime.fromtimestamp(stored.created_at, UTC)
    fields = {"id": stored.id, "text": stored.request.text, "status": stored.status}
    return fields | {"created_at": created_at}


def _download(stored: GenerationRun, file_type: FileType) -> Response:
    media_type, render = _EXPORTS[file_type]
    state = ResponseBuilder.replay(stored).state
    state.input_images = stored.request.images
    try:
        content = render(state)
    except BadImageError as error:
        raise APIError(HTTPStatus.GONE, "An image of this response is missing.") from error
    attachment = f'attachment; filename="story-{stored.id}.{file_type}"'
    headers = {"Content-Disposition": attachment, **SANDBOX_HEADERS}
    return Response(content, media_type=media_type, headers=headers)
