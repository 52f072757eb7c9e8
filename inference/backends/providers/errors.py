"""Errors of providers: what an HTTP status means for the call and for the endpoint."""

import math
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ...roles import RetryableError, UnusableAnswerError

_UNUSABLE_STATUSES = {401, 403, 404}
_RETRYABLE_STATUSES = {408, 409, 425}


class ThrottledError(RetryableError):
    """The endpoint wants fewer calls (429); `retry_after`: for so many seconds, if it says so."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NoAnswerError(RetryableError):
    """A request was sent and no readable answer came: the provider may bill it."""


class EndpointUnusableError(RetryableError):
    """The endpoint takes no call until it is reconfigured: a wrong key, no quota, no such model."""


def parse_retry_after(header: str | None, now: datetime | None = None) -> float | None:
    """Seconds of the header Retry-After, a number or a date; None: missing or unreadable."""
    if not header:
        return None
    with suppress(ValueError):
        seconds = float(header)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    with suppress(ValueError, TypeError):
        date = parsedate_to_datetime(header)
        return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())
    return None


def error_from_status(status: int, text: str, retry_after: float | None) -> Exception:
    """The error that an HTTP status stands for; `retry_after`: seconds that a 429 names."""
    if status in _UNUSABLE_STATUSES:
        return EndpointUnusableError(text)
    if status == 429:
        return ThrottledError(text, retry_after)
    if status >= 500 or status in _RETRYABLE_STATUSES:
        return RetryableError(text)
    return UnusableAnswerError(text)
