"""Metrics of a server, in Prometheus' text format."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsRegistry:
    """Metrics of one server.

    Args:
        prefix: of all their names.
        seconds: upper bounds of the buckets of durations.
    """

    def __init__(self, prefix: str, seconds: Sequence[float] = SECONDS) -> None:
        self._prefix, self._seconds, self._registry = prefix, seconds, CollectorRegistry()

    def counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(f"{self._prefix}_{name}", description, labels, registry=self._registry)

    def gauge(self, name: str, description: str) -> Gauge:
        return Gauge(f"{self._prefix}_{name}", description, registry=self._registry)

    def histogram(
        self, name: str, description: str, *labels: str, buckets: Sequence[float] | None = None
    ) -> Histogram:
        """A histogram of durations in seconds, unless it has other buckets."""
        return Histogram(
            f"{self._prefix}_{name}",
            description,
            labels,
            registry=self._registry,
            buckets=buckets or self._seconds,
        )

    def exposition(self) -> Response:
        """All metrics, as Prometheus reads them."""
        return Response(generate_latest(self._registry), media_type=_MEDIA_TYPE)
