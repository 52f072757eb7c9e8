"""What operators see of the service: logs, one JSON object a line, and metrics for Prometheus.

Logs have no users' prompts unless a setting asks for them.
"""

import logging
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import orjson
from starlette.responses import Response

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
from ..generation.event_log import Ending, RunEvent, RunStarted, RunTerminated
from ..http.admission import AdmissionQueue
from ..http.metrics import SECONDS, MetricsRegistry
from .run import GenerationRun
from .settings import LogSettings

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)

_QUIET = ("httpx", "httpcore", "uvicorn.access")

_log = logging.getLogger(__name__)


def log_as_json(settings: LogSettings) -> None:
    """Send all logs of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(settings.prompts))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """A record as a line.

    Args:
        prompts: include messages of exceptions, which may quote a user's prompt.
    """

    def __init__(self, prompts: bool = False) -> None:
        super().__init__()
        self._prompts = prompts

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": REQUEST_ID.get(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1]:
            line["error"] = self._error(record.exc_info[1])
        return orjson.dumps(line, default=str).decode("utf-8", "replace")

    def _error(self, error: BaseException) -> dict[str, Any]:
        frames = traceback.extract_tb(error.__traceback__)
        description: dict[str, Any] = {
            "type": type(error).__name__,
            "frames": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
        }
        return description | ({"message": str(error)} if self._prompts else {})


class GenerationLog:
    """A line when a generation starts, and one when it ends."""

    def __init__(self, prompts: bool) -> None:
        self._prompts = prompts

    def record(self, run: GenerationRun, event: RunEvent) -> None:
        """Log the next event of a request, if it is the first or the last."""
        fields: dict[str, Any] = {"response_id": run.id, "owner": run.owner}
        if isinstance(event, RunStarted):
            prompt = {"text": run.request.text} if self._prompts else {}
            log_event("generation started", **fields, versions=event.versions, **prompt)
        elif run.ending:
            builder = run.build_response()
            steps = builder.state.steps
            error = {"error": builder.error} if self._prompts and builder.error else {}
            log_event(
                "generation ended",
                **fields,
                status=builder.status,
                steps=len(builder.state.plan.steps if builder.state.plan else ()),
                attempts=sum(len(step.attempts) for step in steps),
                wasted_draws=builder.wasted_draws,
                **error,
            )


def log_event(message: str, **fields: object) -> None:
    """Log a line with these fields."""
    _log.info(message, extra={"fields": fields})


class ServiceMetrics(MetricsRegistry):
    """Metrics of one service."""

    def __init__(self) -> None:
        super().__init__("interleave_service", (*SECONDS, 1000))
        self._step_started: WeakKeyDictionary[GenerationRun, float] = WeakKeyDictionary()
        self._http = self.counter("http_requests", "HTTP requests", "path", "method", "status")
        self._requests = self.counter("requests", "Finished generations, by outcome", "status")
        self._steps = self.counter("steps", "Finished steps: accepted or exhausted", "outcome")
        self._attempts = self.counter(
            "attempts", "Judged images; accepted over all is the acceptance rate", "accepted"
        )
        self._wasted = self.counter("wasted_draws", "Images drawn ahead and not needed")
        self._tokens = self.counter("tokens", "Tokens of models' calls", "role", "direction")
        self._cost = self.counter("cost_usd", "Price of the calls that have one", "role")
        self._queue_seconds = self.histogram("queue_seconds", "Time that a request waits")
        self._request_seconds = self.histogram("request_seconds", "Request, waiting included")
        self._step_seconds = self.histogram("step_seconds", "Step with all its attempts")
        self._call_seconds = self.histogram("backend_seconds", "Model call", "role", "backend")
        self._attempt_seconds = self.histogram("attempt_seconds", "Image and its verdict")
        self._waiting = self.gauge("waiting", "Requests that wait")
        self._running = self.gauge("running", "Requests that are running")
        self._open = self.gauge("connections", "Open HTTP requests")

    def count_response(self, path: str, method: str, status: int) -> None:
        """Count an HTTP request. `path`: of the route, without ids."""
        self._http.labels(path, method, str(status)).inc()

    def record(self, run: GenerationRun, event: RunEvent) -> None:
        """Count the next event of a request."""
        match event:
            case RunStarted():
                self._queue_seconds.observe(monotonic() - run.start)
            case StepStarted():
                self._step_started[run] = monotonic()
            case PlanReady(call=call) | ImageGenerated(call=call):
                self._record_call(call, run)
            case AttemptJudged(draw=draw, verdict=verdict, call=call):
                self._record_call(call, run)
                self._attempts.labels(str(verdict.accepted).lower()).inc()
                self._attempt_seconds.observe(draw.call.seconds + call.seconds)
            case StepAccepted() | StepExhausted():
                outcome = "accepted" if isinstance(event, StepAccepted) else "exhausted"
                self._steps.labels(outcome).inc()
                self._step_seconds.observe(monotonic() - self._step_started[run])
            case TrajectoryFinished() | TrajectoryFailed() | RunTerminated():
                self._record_end(run, event)

    def response(self, queue: AdmissionQueue, connections: int) -> Response:
        """The answer of `/metrics`."""
        self._waiting.set(queue.waiting)
        self._running.set(queue.running)
        self._open.set(connections)
        return self.exposition()

    def _record_call(self, call: ModelCallRow, run: GenerationRun) -> None:
        """Count a call, unless an earlier run of this request made it."""
        if call.started_at < run.received_at:
            return
        self._call_seconds.labels(call.role, call.backend).observe(call.seconds)
        self._tokens.labels(call.role, "input").inc(call.input_tokens or 0)
        self._tokens.labels(call.role, "output").inc(call.output_tokens or 0)
        self._cost.labels(call.role).inc(call.cost_usd or 0)

    def _record_end(self, run: GenerationRun, ending: Ending) -> None:
        self._requests.labels(run.build_response().status).inc()
        self._request_seconds.observe(monotonic() - run.start)
        if isinstance(ending, TrajectoryFinished):
            self._wasted.inc(ending.wasted_draws)
