"""What Prometheus is told."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .replica import DrawnImages

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_PREFIX = "interleave_images"


class ImagesServerMetrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{_PREFIX}_requests",
            "Requests by endpoint and status; 499: the client went away",
            ("endpoint", "status"),
            registry=self._registry,
        )
        self._pictures = Counter(
            f"{_PREFIX}_pictures",
            "Pictures drawn, by replica (host:process)",
            ("replica",),
            registry=self._registry,
        )
        self._queue = self._gauge("queue", "Pictures that are waiting or being drawn")
        self._running = self._gauge("replicas_running", "Replicas that can draw")
        self._wanted = self._gauge("replicas_wanted", "Replicas that there are to be")
        self._batch = self._histogram(
            "batch_size", "How many were drawn together, by picture", (1, 2, 4, 8, 16, 32)
        )
        self._model = self._histogram(
            "model_seconds", "In the model, for the batch that a picture was in"
        )
        self._outside = self._histogram(
            "outside_seconds", "Of a request outside the model: waiting, transfer, encoding"
        )

    def answered(self, endpoint: str, status: int) -> None:
        """A request is over."""
        self._requests.labels(endpoint, str(status)).inc()

    def drawn(self, pictures: list[DrawnImages], seconds: float) -> None:
        """Pictures of a request that took so many seconds."""
        for picture in pictures:
            self._pictures.labels(picture.replica).inc()
            self._batch.observe(picture.batch)
            self._model.observe(picture.seconds)
        self._outside.observe(max(0.0, seconds - max(each.seconds for each in pictures)))

    def text(self, queue: int, running: int, wanted: int) -> bytes:
        """All of it, in Prometheus' own format."""
        self._queue.set(queue)
        self._running.set(running)
        self._wanted.set(wanted)
        return generate_latest(self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", meaning, registry=self._registry)

    def _histogram(
        self, name: str, meaning: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}", meaning, registry=self._registry, buckets=buckets)
