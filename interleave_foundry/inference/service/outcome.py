"""How a story that could not be told is answered, where the answer is not a Response."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ..events import Failed, Finished
from ..http.errors import Refusal
from .happenings import STOPPED, CutShort, Ending

_SOON_SECONDS = 5


def problem_of(ending: Ending, reason: str) -> Refusal | None:
    """The error that an ending is; None: there is a story, or somebody cancelled it.

    Args:
        reason: for people.
    """
    if isinstance(ending, Failed):
        return _failed(ending, reason)
    if isinstance(ending, CutShort) and ending.status == "interrupted":
        return _interrupted(ending, reason)
    return None


def ending_of(response: Mapping[str, Any]) -> Ending:
    """How the story of a kept Response ended."""
    record = response["interleave"]
    status, reason = record["status"], record["error"] or ""
    if status in ("cancelled", "interrupted"):
        return CutShort(status, reason)
    if status in ("refused", "failed"):
        return Failed(reason, refused=status == "refused")
    return Finished(status, record["wasted_draws"])


def _failed(ending: Failed, reason: str) -> Refusal:
    if ending.refused:
        return Refusal(HTTPStatus.BAD_REQUEST, reason, "invalid_prompt")
    # What may pass has been tried again already: the client is to leave it at that.
    return Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, reason, "server_error", retry=False)


def _interrupted(ending: CutShort, reason: str) -> Refusal:
    if ending == STOPPED:  # another one is about to take its place
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return Refusal(status, reason, "interrupted", retry_after=_SOON_SECONDS)
    return Refusal(HTTPStatus.GATEWAY_TIMEOUT, reason, "interrupted", retry=False)
