"""What a provider's answer means for the call, and for the endpoint."""

import math
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ...roles import RetryableError, UnusableAnswerError

_UNUSABLE = {401, 403, 404}
_PASSING = {408, 409, 425}


class ThrottledError(RetryableError):
    """The endpoint wants fewer calls (429).

    Args:
        after: seconds that it asks to be left alone for; None: it does not say.
    """

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class EndpointUnusableError(RetryableError):
    """The endpoint will take no call until somebody acts: a wrong key, no quota, no such model."""


def parse_retry_after(retry_after: str | None, now: datetime | None = None) -> float | None:
    """The header Retry-After in seconds, be it a number or a date; None: it says nothing."""
    if not retry_after:
        return None
    with suppress(ValueError):
        seconds = float(retry_after)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    with suppress(ValueError, TypeError):
        then = parsedate_to_datetime(retry_after)
        return max(0.0, (then - (now or datetime.now(UTC))).total_seconds())
    return None


def error_from_status(status: int, text: str, after: float | None) -> Exception:
    """The error that an HTTP status stands for.

    Args:
        after: seconds that a 429 asks to be left alone for.
    """
    if status in _UNUSABLE:
        return EndpointUnusableError(text)
    if status == 429:
        return ThrottledError(text, after)
    return (
        RetryableError(text) if status >= 500 or status in _PASSING else UnusableAnswerError(text)
    )
