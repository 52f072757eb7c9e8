"""Kept requests as the page lists and shows them."""

from datetime import UTC, datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field

from ..response_store import StoredResponse


class GenerationSummary(BaseModel):
    """A line of the list of earlier stories."""

    id: str = Field(description="Id of the response")
    text: str = Field(description="What was asked for")
    created_at: AwareDatetime = Field(description="When, UTC")
    status: str = Field(description="How it ended, or `in_progress`")
    cover: str | None = Field(description="sha256 of its last picture; null: it has none")
    pictures: int = Field(description="Number of its pictures")


class GenerationList(BaseModel):
    """Some earlier stories, newest first."""

    stories: list[GenerationSummary]
    next_offset: int | None = Field(description="Where the list goes on; null: it ends here")


class StoredGeneration(BaseModel):
    """An earlier story, whole but for the bytes of its pictures."""

    id: str = Field(description="Id of the response")
    text: str = Field(description="What was asked for")
    created_at: AwareDatetime = Field(description="When, UTC")
    status: str = Field(description="How it ended, or `in_progress`")
    given: list[str] = Field(description="sha256 of the pictures given with the request")
    response: dict[str, Any] = Field(description="The Response, with its field `interleave`")


def summary_of(kept: StoredResponse) -> GenerationSummary:
    """A line about a kept request."""
    pictures = _pictures(kept)
    return GenerationSummary(
        id=kept.id,
        text=kept.text,
        created_at=_time(kept),
        status=_status(kept),
        cover=pictures[-1] if pictures else None,
        pictures=len(pictures),
    )


def generation_of(kept: StoredResponse) -> StoredGeneration:
    """All of a kept request."""
    return StoredGeneration(
        id=kept.id,
        text=kept.text,
        created_at=_time(kept),
        status=_status(kept),
        given=_told(kept).get("given", []),
        response=kept.response,
    )


def _told(kept: StoredResponse) -> dict[str, Any]:
    """The Response's own extension; empty as long as nothing has been told."""
    return kept.response.get("interleave") or {}


def _status(kept: StoredResponse) -> str:
    return str(_told(kept).get("status") or kept.status)


def _pictures(kept: StoredResponse) -> list[str]:
    return [step["picture"] for step in _told(kept).get("steps", []) if step["picture"]]


def _time(kept: StoredResponse) -> datetime:
    return datetime.fromtimestamp(kept.created_at, UTC)
