"""Routes of the studio: the page, its files, earlier stories and their pictures."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from schemas import BadImageError
from warehouse import Home

from ...generation.generation_record import stored_generation
from ...http.errors import APIError
from ..response_store import ResponseStore, StoredResponse
from ..responses.response_models import ErrorBody
from .exports import Ending, download
from .files import PageFiles
from .generations import GenerationList, StoredGeneration, generation_of, summary_of

_A_PAGE = 24

_Described = dict[int | str, dict[str, Any]]
_REFUSED: _Described = {"default": {"model": ErrorBody, "description": "Refused"}}

StoryId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]


def studio_router(
    home: Home, library: ResponseStore, owner_of: Callable[[Request], str]
) -> APIRouter:
    """The studio's routes.

    Args:
        owner_of: whose stories a request may see; raises what the service answers when it may not
            see any.
    """
    router = APIRouter()
    router.include_router(_page())
    router.include_router(_data(home, library, owner_of))
    return router


def _page() -> APIRouter:
    """The page and its files; everybody may have them."""
    router, files = APIRouter(include_in_schema=False), PageFiles()

    @router.get("/")
    async def page() -> Response:
        return files.response("index.html")

    @router.get("/studio/static/{name:path}")
    async def file(name: str) -> Response:
        return files.response(name)

    return router


def _data(home: Home, library: ResponseStore, owner_of: Callable[[Request], str]) -> APIRouter:
    router = APIRouter(prefix="/studio", tags=["studio"], responses=_REFUSED)

    def kept(request: Request, story_id: str) -> StoredResponse:
        found = library.get(story_id, owner_of(request))
        if found is None:
            raise _missing("there is no such story")
        return found

    @router.get("/stories")
    def stories(
        request: Request,
        words: Annotated[str, Query(max_length=200)] = "",
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    ) -> GenerationList:
        """Earlier stories with these words in their requests, newest first."""
        found = library.search(owner_of(request), words, _A_PAGE + 1, offset)
        following = offset + _A_PAGE if len(found) > _A_PAGE else None
        summaries = [summary_of(each) for each in found[:_A_PAGE]]
        return GenerationList(stories=summaries, next_offset=following)

    @router.get(
        "/stories/{story_id}.{ending}",
        response_class=Response,
        responses=_bytes("text/html", "text/markdown", "application/zip"),
    )
    def export(request: Request, story_id: StoryId, ending: Ending) -> Response:
        """A story as one HTML file, as Markdown, or as a ZIP of both with its pictures."""
        response = kept(request, story_id).response
        try:
            return download(stored_generation(response, home), story_id, ending)
        except BadImageError as error:
            message = "a picture of this story is not there any more"
            raise APIError(HTTPStatus.GONE, message) from error

    @router.get("/stories/{story_id}")
    def story(request: Request, story_id: StoryId) -> StoredGeneration:
        """An earlier story."""
        return generation_of(kept(request, story_id))

    @router.get(
        "/pictures/{sha256}",
        response_class=Response,
        responses=_bytes("image/png", "image/jpeg", "image/webp"),
    )
    def picture(request: Request, sha256: Sha256) -> Response:
        """A picture of a story; who knows its hash has seen it."""
        owner_of(request)
        try:
            found = home.images.get(sha256)
        except BadImageError as error:
            raise _missing("there is no such picture") from error
        return Response(found.data, media_type=found.mime, headers=_PICTURE_HEADERS)

    return router


def _missing(message: str) -> APIError:
    return APIError(HTTPStatus.NOT_FOUND, message, "not_found")


def _bytes(*media_types: str) -> _Described:
    """What a route that sends a file says of it."""
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {200: {"description": "The file", "content": dict.fromkeys(media_types, schema)}}


# A hash names one picture for ever; a key of another may not see it from a shared cache.
_PICTURE_HEADERS = {
    "Cache-Control": "private, max-age=31536000, immutable",
    "Vary": "Authorization",
    "X-Content-Type-Options": "nosniff",
}
