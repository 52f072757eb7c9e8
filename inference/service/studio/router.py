"""Routes of the studio: the page, its static files, earlier stories and their pictures."""

from http import HTTPStatus
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse

from schemas import BadImageError
from warehouse import Home

from ...http.errors import APIError
from ..openapi import ErrorBody
from ..response_store import ResponseStore, StoredResponse
from ..serving import owner_of
from .stories import FileType, GenerationList, StoredGeneration, download, generation_of, summary_of

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
_STATIC_HEADERS = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # files of different versions do not fit each other
}
# A hash always names the same picture; shared caches must not give it to holders of other keys.
_IMAGE_HEADERS = {
    "Cache-Control": "private, max-age=31536000, immutable",
    "Vary": "Authorization",
    "X-Content-Type-Options": "nosniff",
}

_Responses = dict[int | str, dict[str, Any]]
_ERRORS: _Responses = {"default": {"model": ErrorBody, "description": "Error"}}

StoryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]


def studio_router(home: Home, store: ResponseStore) -> APIRouter:
    """The studio's routes."""
    router = APIRouter()
    router.include_router(_static_router())
    router.include_router(_data_router(home, store))
    return router


def _static_router() -> APIRouter:
    """The page and its files, which need no key."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page() -> Response:
        return _static_file("index.html")

    @router.get("/studio/static/{name:path}")
    async def static_file(name: str) -> Response:
        return _static_file(name)

    return router


def _static_file(name: str) -> Response:
    if name not in _STATIC_FILES:
        raise _not_found("the studio has no such file")
    return FileResponse(_STATIC_FILES[name], headers=_STATIC_HEADERS)


def _data_router(home: Home, store: ResponseStore) -> APIRouter:
    router = APIRouter(prefix="/studio", tags=["studio"], responses=_ERRORS)

    def find(request: Request, story_id: str) -> StoredResponse:
        stored = store.get(story_id, owner_of(request))
        if stored is None:
            raise _not_found("there is no such story")
        return stored

    @router.get("/stories")
    def stories(
        request: Request,
        words: Annotated[str, Query(max_length=200)] = "",
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    ) -> GenerationList:
        """Earlier stories whose requests contain these words, newest first."""
        found = store.search(owner_of(request), words, _PAGE_SIZE + 1, offset)
        next_offset = offset + _PAGE_SIZE if len(found) > _PAGE_SIZE else None
        summaries = [summary_of(stored, home.images) for stored in found[:_PAGE_SIZE]]
        return GenerationList(stories=summaries, next_offset=next_offset)

    @router.get(
        "/stories/{story_id}.{ending}",
        response_class=Response,
        responses=_file_response("text/html", "text/markdown", "application/zip"),
    )
    def export(request: Request, story_id: StoryId, ending: FileType) -> Response:
        """A story as one HTML file, as Markdown, or as a ZIP of both with its pictures."""
        stored = find(request, story_id)
        try:
            return download(stored, ending, home.images)
        except BadImageError as error:
            raise APIError(HTTPStatus.GONE, "a picture of this story is missing") from error

    @router.get("/stories/{story_id}")
    def story(request: Request, story_id: StoryId) -> StoredGeneration:
        """An earlier story."""
        return generation_of(find(request, story_id), home.images)

    @router.get(
        "/pictures/{sha256}",
        response_class=Response,
        responses=_file_response("image/png", "image/jpeg", "image/webp"),
    )
    def picture(sha256: Sha256) -> Response:
        """A picture of a story; any key may read it, since its hash cannot be guessed."""
        try:
            image = home.images.get(sha256)
        except BadImageError as error:
            raise _not_found("there is no such picture") from error
        return Response(image.data, media_type=image.mime, headers=_IMAGE_HEADERS)

    return router


def _not_found(message: str) -> APIError:
    return APIError(HTTPStatus.NOT_FOUND, message, "not_found")


def _file_response(*media_types: str) -> _Responses:
    """OpenAPI description of a route that answers with a file."""
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {200: {"description": "The file", "content": dict.fromkeys(media_types, schema)}}
