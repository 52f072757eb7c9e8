"""Stored generations as the page lists, shows and downloads them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, Field
from starlette.responses import Response

from warehouse import ImageStore

from ...generation.event_log import LazyImage
from ...generation.generation_state import GenerationState
from ...generation.html_export import generation_html, generation_markdown, generation_zip
from ..response_store import StoredResponse
from ..responses.response_builder import ResponseBuilder
from ..run import GenerationRun

FileType = Literal["html", "md", "zip"]


class _Generation(BaseModel):
    id: str = Field(description="Id of the response")
    text: str = Field(description="The request's text")
    created_at: AwareDatetime = Field(description="When it was requested, UTC")
    status: str = Field(description="How it ended, or `queued`")


class GenerationSummary(_Generation):
    """An entry in the list of earlier stories."""

    cover: str | None = Field(description="sha256 of its last picture; null: it has none")
    pictures: int = Field(description="Number of its pictures")


class GenerationList(BaseModel):
    """A page of earlier stories, newest first."""

    stories: list[GenerationSummary]
    next_offset: int | None = Field(description="Offset of the next page; null: there is none")


class StoredGeneration(_Generation):
    """An earlier story, without the bytes of its pictures."""

    given: list[str] = Field(description="sha256 of the pictures of the request")
    response: dict[str, Any] = Field(description="The Response, with its field `interleave`")


@dataclass(frozen=True)
class _Export:
    media_type: str
    render: Callable[[GenerationState], str | bytes]


_EXPORTS: dict[FileType, _Export] = {
    "html": _Export("text/html", generation_html),
    "md": _Export("text/markdown", generation_markdown),
    "zip": _Export("application/zip", generation_zip),
}


def summary_of(stored: StoredResponse, images: ImageStore) -> GenerationSummary:
    hashes = [image.sha256 for image in _builder(stored, images).state.images]
    cover = hashes[-1] if hashes else None
    return GenerationSummary(**_fields(stored), cover=cover, pictures=len(hashes))


def generation_of(stored: StoredResponse, images: ImageStore) -> StoredGeneration:
    response = _builder(stored, images).to_json()
    given = stored.request["input_images"]
    return StoredGeneration(**_fields(stored), given=given, response=response)


def download(stored: StoredResponse, file_type: FileType, images: ImageStore) -> Response:
    """A story as an attachment.

    Raises:
        BadImageError: one of its pictures is missing or damaged.
    """
    export = _EXPORTS[file_type]
    return Response(
        export.render(_state_of(stored, images)),
        media_type=export.media_type,
        headers={
            "Content-Disposition": f'attachment; filename="story-{stored.id}.{file_type}"',
            # Opened in place, it must not run as a page of this origin.
            "Content-Security-Policy": "sandbox",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _state_of(stored: StoredResponse, images: ImageStore) -> GenerationState:
    """A stored request with its input images, and its generation's events."""
    run = GenerationRun.restore(stored, images)
    input_images = tuple(LazyImage(images, sha256) for sha256 in run.request.input_images)
    state = GenerationState(run.request.text, input_images)
    for event in run.events:
        state.note(event)
    return state


def _builder(stored: StoredResponse, images: ImageStore) -> ResponseBuilder:
    return GenerationRun.restore(stored, images).build_response()


def _fields(stored: StoredResponse) -> dict[str, Any]:
    created_at = datetime.fromtimestamp(stored.created_at, UTC)
    fields = {"id": stored.id, "text": stored.text, "status": stored.status}
    return fields | {"created_at": created_at}
