"""How a story that could not be told is answered, where the answer is not a Response."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ..events import TrajectoryFailed, TrajectoryFinished
from ..http.errors import APIError
from .lifecycle import STOPPED, Ending, RunTerminated

_SOON_SECONDS = 5


def problem_of(ending: Ending, reason: str) -> APIError | None:
    """The error that an ending is; None: there is a story, or somebody cancelled it.

    Args:
        reason: for people.
    """
    if isinstance(ending, TrajectoryFailed):
        return _failed(ending, reason)
    if isinstance(ending, RunTerminated) and ending.status == "interrupted":
        return _interrupted(ending, reason)
    return None


def ending_of(response: Mapping[str, Any]) -> Ending:
    """How the story of a kept Response ended."""
    record = response["interleave"]
    status, reason = record["status"], record["error"] or ""
    if status in ("cancelled", "interrupted"):
        return RunTerminated(status, reason)
    if status in ("refused", "failed"):
        return TrajectoryFailed(reason, refused=status == "refused")
    return TrajectoryFinished(status, record["wasted_draws"])


def _failed(ending: TrajectoryFailed, reason: str) -> APIError:
    if ending.refused:
        return APIError(HTTPStatus.BAD_REQUEST, reason, "invalid_prompt")
    # What may pass has been tried again already: the client is to leave it at that.
    return APIError(HTTPStatus.INTERNAL_SERVER_ERROR, reason, "server_error", retry=False)


def _interrupted(ending: RunTerminated, reason: str) -> APIError:
    if ending == STOPPED:  # another one is about to take its place
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return APIError(status, reason, "interrupted", retry_after=_SOON_SECONDS)
    return APIError(HTTPStatus.GATEWAY_TIMEOUT, reason, "interrupted", retry=False)
