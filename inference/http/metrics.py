"""Metrics of a server, in Prometheus' text format."""

from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsRegistry:
    """Metrics of one server. `seconds`: default bounds of the buckets of its histograms."""

    def __init__(self, prefix: str, seconds: Sequence[float] = SECONDS) -> None:
        self._registry = CollectorRegistry()
        self.counter = partial(Counter, namespace=prefix, registry=self._registry)
        self.gauge = partial(Gauge, namespace=prefix, registry=self._registry)
        self.histogram = partial(
            Histogram, namespace=prefix, registry=self._registry, buckets=seconds
        )

    def exposition(self) -> Response:
        """All metrics, as Prometheus reads them."""
        return Response(generate_latest(self._registry), media_type=_MEDIA_TYPE)
