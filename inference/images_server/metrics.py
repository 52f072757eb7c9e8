"""The images server's metrics for Prometheus."""

from collections.abc import Sequence

from starlette.responses import Response

from ..http.metrics import MetricsRegistry
from .ray_replicas import Readiness
from .replica import DrawnImage


class ImagesServerMetrics(MetricsRegistry):
    """Metrics of one server."""

    def __init__(self) -> None:
        super().__init__("interleave_images")
        self._requests = self.counter(
            "requests",
            "Requests by endpoint and status; 499: the client disconnected",
            *("endpoint", "status"),
        )
        self._images = self.counter(
            "pictures", "Images generated, by replica (host:process)", "replica"
        )
        self._queue = self.gauge("queue", "Images that are waiting or being generated")
        self._running = self.gauge("replicas_running", "Replicas that are running")
        self._wanted = self.gauge("replicas_wanted", "Replicas that should be running")
        self._batch_size = self.histogram(
            "batch_size", "Size of an image's batch", buckets=(1, 2, 4, 8, 16, 32)
        )
        self._model_seconds = self.histogram(
            "model_seconds", "Time in the model of an image's batch"
        )
        self._outside_seconds = self.histogram(
            "outside_seconds", "Time of a request outside the model: waiting, transfer, encoding"
        )

    def count_response(self, endpoint: str, status: int) -> None:
        """Count a request."""
        self._requests.labels(endpoint, str(status)).inc()

    def record(self, images: Sequence[DrawnImage], seconds: float) -> None:
        """Count the images of a request that took so many seconds."""
        for image in images:
            self._images.labels(image.replica).inc()
            self._batch_size.observe(image.batch)
            self._model_seconds.observe(image.seconds)
        self._outside_seconds.observe(max(0.0, seconds - max(each.seconds for each in images)))

    def response(self, queue: int, replicas: Readiness) -> Response:
        """The answer of `/metrics`. `queue`: images that are admitted."""
        self._queue.set(queue)
        self._running.set(replicas.running)
        self._wanted.set(replicas.wanted)
        return self.exposition()
