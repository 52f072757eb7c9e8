"""What Prometheus is told."""

from time import monotonic
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from schemas.trajectories import ModelCallRow

from ..events import (
    AttemptJudged,
    ImageGenerated,
    PlanReady,
    StepAccepted,
    StepExhausted,
    StepStarted,
    TrajectoryFailed,
    TrajectoryFinished,
)
from .admission import AdmissionQueue
from .lifecycle import RunEvent, RunStarted, RunTerminated
from .run import GenerationRun

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
_PREFIX = "interleave_service"


class ServiceMetrics:
    """Counters of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._steps_began: WeakKeyDictionary[GenerationRun, float] = WeakKeyDictionary()
        self._http = self._counter("http_requests", "HTTP requests", "path", "method", "status")
        self._requests = self._counter("requests", "Requests for stories, by outcome", "status")
        self._steps = self._counter("steps", "Steps drawn: accepted or exhausted", "outcome")
        self._attempts = self._counter(
            "attempts", "Pictures judged, by verdict; accepted over all is the rate", "accepted"
        )
        self._wasted = self._counter("wasted_draws", "Pictures drawn ahead and not needed")
        self._tokens = self._counter("tokens", "Tokens that models counted", "role", "direction")
        self._cost = self._counter("cost_usd", "Price of the calls that have one", "role")
        self._queued = self._histogram("queue_seconds", "Of a request before it is told")
        self._told = self._histogram("request_seconds", "Of a request, waiting included")
        self._step = self._histogram("step_seconds", "Of a step, all its attempts")
        self._backend = self._histogram("backend_seconds", "Of a model's call", "role", "backend")
        self._attempt = self._histogram("attempt_seconds", "Of a picture and its verdict")
        self._waiting = self._gauge("waiting", "Requests that wait for their turn")
        self._running = self._gauge("running", "Requests that are being told")
        self._open = self._gauge("connections", "HTTP requests that are open")

    def answered(self, path: str, method: str, status: int) -> None:
        """An HTTP request is over. `path`: of the route, without ids."""
        self._http.labels(path, method, str(status)).inc()

    def happened(self, run: GenerationRun, event: RunEvent) -> None:
        """Take in the next event of a request."""
        match event:
            case RunStarted():
                self._queued.observe(monotonic() - run.began)
            case StepStarted():
                self._steps_began[run] = monotonic()
            case PlanReady(call=call) | ImageGenerated(call=call):
                self._called(call, run)
            case AttemptJudged(draw=draw, verdict=verdict, call=call):
                self._called(call, run)
                self._attempts.labels(str(verdict.accepted).lower()).inc()
                self._attempt.observe(draw.call.seconds + call.seconds)
            case StepAccepted() | StepExhausted():
                outcome = "accepted" if isinstance(event, StepAccepted) else "exhausted"
                self._steps.labels(outcome).inc()
                self._step.observe(monotonic() - self._steps_began[run])
            case TrajectoryFinished() | TrajectoryFailed() | RunTerminated():
                self._over(run, event)

    def text(self, queue: AdmissionQueue, connections: int) -> bytes:
        """All of it, in Prometheus' own format."""
        self._waiting.set(queue.waiting)
        self._running.set(queue.running)
        self._open.set(connections)
        return generate_latest(self._registry)

    def _called(self, call: ModelCallRow, run: GenerationRun) -> None:
        """Count a call, unless an earlier run of this request made it."""
        if call.started_at < run.came_at:
            return
        self._backend.labels(call.role, call.backend).observe(call.seconds)
        self._tokens.labels(call.role, "input").inc(call.input_tokens or 0)
        self._tokens.labels(call.role, "output").inc(call.output_tokens or 0)
        self._cost.labels(call.role).inc(call.cost_usd or 0)

    def _over(
        self, run: GenerationRun, event: TrajectoryFinished | TrajectoryFailed | RunTerminated
    ) -> None:
        self._requests.labels(run.answer().status).inc()
        self._told.observe(monotonic() - run.began)
        if isinstance(event, TrajectoryFinished):
            self._wasted.inc(event.wasted_draws)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", meaning, labels, registry=self._registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", meaning, registry=self._registry)

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        return Histogram(
            f"{_PREFIX}_{name}", meaning, labels, registry=self._registry, buckets=_SECONDS
        )
