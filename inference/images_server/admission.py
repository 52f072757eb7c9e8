"""The bounded queue: how many pictures may wait or be drawn at a time."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from time import monotonic

from ..http.errors import APIError, bad_request

_LONGEST_SECONDS = 60
_WEIGHT = 0.2  # of the newest request in the running mean


class ImageAdmission:
    """Places for pictures.

    Ray Serve's own bound counts those not yet assigned to a replica, which refuses some of a burst
    that it has room for; and a request for several pictures is to be taken as a whole.

    Args:
        most: pictures at a time.
    """

    def __init__(self, most: int) -> None:
        self._most, self._seconds = most, 1.0
        self.used = 0

    @contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Hold so many places.

        Raises:
            Refusal: there are not as many free now, or never.
        """
        if count > self._most:
            raise bad_request(f"this server takes no more than {self._most} pictures at once", "n")
        if self.used + count > self._most:
            raise APIError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"{self.used} pictures are waiting or being drawn already; try again",
                "queue_full",
                retry_after=self._wait,
            )
        begun = monotonic()
        self.used += count
        try:
            yield
            self._seconds += _WEIGHT * (monotonic() - begun - self._seconds)
        finally:
            self.used -= count

    @property
    def _wait(self) -> int:
        """Seconds that a request has taken of late."""
        return min(_LONGEST_SECONDS, max(1, math.ceil(self._seconds)))
