"""What operators see of the service: logs, one JSON object a line, and metrics for Prometheus.

Logs have no users' prompts unless a setting asks for them. The middleware around every HTTP request
gives it an id, counts it, logs it, and limits how many are open.
"""

import asyncio
import logging
import re
import sys
import traceback
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.trajectories import ModelCallRow

from ..events import (
    AttemptJudged,
    ImageGenerated,
    PlanReady,
    RunEvent,
    RunStarted,
    StepAccepted,
    StepExhausted,
    StepStarted,
)
from ..http.admission import AdmissionQueue
from ..http.auth import is_health_path
from ..http.errors import CLIENT_CLOSED, too_many_requests
from ..http.server import SECONDS, MetricsRegistry
from .response_builder import ResponseBuilder
from .run import GenerationRun
from .settings import LogSettings

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)

_CREATING = ("/v1/responses", "/v1/chat/completions", "/v1/images/generations", "/v1/images/edits")
_QUIET = ("httpx", "httpx2", "httpcore", "httpcore2", "uvicorn.access")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

_log = logging.getLogger(__name__)


def log_as_json(settings: LogSettings) -> None:
    """Send all logs of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(settings.prompts))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """A record as a line; `prompts`: with messages of exceptions, which may quote a prompt."""

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
        if record.exc_info and (error := record.exc_info[1]):
            frames = traceback.extract_tb(error.__traceback__)
            line["error"] = {
                "type": type(error).__name__,
                "frames": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
                **({"message": str(error)} if self._prompts else {}),
            }
        return orjson.dumps(line, default=str).decode("utf-8", "replace")


def log_generation(run: GenerationRun, event: RunEvent, prompts: bool) -> None:
    """Log the first event of a request and the last; `prompts`: with the user's text and error."""
    fields: dict[str, Any] = {"response_id": run.id, "owner": run.owner}
    if isinstance(event, RunStarted):
        prompt = {"text": run.request.text} if prompts else {}
        _log_event("generation started", **fields, versions=event.versions, **prompt)
    elif run.ending:
        builder = ResponseBuilder.replay(run)
        state = builder.state
        error = {"error": builder.error} if prompts and builder.error else {}
        _log_event(
            "generation ended",
            **fields,
            status=builder.status,
            steps=len(state.plan.steps if state.plan else ()),
            attempts=sum(len(step.attempts) for step in state.steps),
            wasted_draws=builder.wasted_draws,
            **error,
        )


def _log_event(message: str, **fields: object) -> None:
    _log.info(message, extra={"fields": fields})


class ServiceMetrics(MetricsRegistry):
    """Metrics of one service; `connections`: open HTTP requests."""

    def __init__(self) -> None:
        super().__init__("interleave_service", (*SECONDS, 1000))
        self.connections = 0
        self._step_started: WeakKeyDictionary[GenerationRun, float] = WeakKeyDictionary()
        self.http_requests = self.counter(
            "http_requests", "HTTP requests", ("path", "method", "status")
        )
        self._requests = self.counter("requests", "Finished generations, by outcome", ["status"])
        self._steps = self.counter("steps", "Finished steps: accepted or exhausted", ["outcome"])
        self._attempts = self.counter(
            "attempts", "Judged images; accepted over all is the acceptance rate", ["accepted"]
        )
        self._wasted = self.counter("wasted_draws", "Images drawn ahead and not needed")
        self._tokens = self.counter("tokens", "Tokens of models' calls", ("role", "direction"))
        self._cost = self.counter("cost_usd", "Price of the calls that have one", ["role"])
        self._queue_seconds = self.histogram("queue_seconds", "Time that a request waits")
        self._request_seconds = self.histogram("request_seconds", "Request, waiting included")
        self._step_seconds = self.histogram("step_seconds", "Step with all its attempts")
        self._call_seconds = self.histogram("backend_seconds", "Model call", ("role", "backend"))
        self._attempt_seconds = self.histogram("attempt_seconds", "Image and its verdict")
        self._waiting = self.gauge("waiting", "Requests that wait")
        self._running = self.gauge("running", "Requests that are running")
        self._open = self.gauge("connections", "Open HTTP requests")

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
            case _ if run.ending:
                builder = ResponseBuilder.replay(run)
                self._requests.labels(builder.status).inc()
                self._request_seconds.observe(monotonic() - run.start)
                self._wasted.inc(builder.wasted_draws)

    def response(self, queue: AdmissionQueue) -> Response:
        self._waiting.set(queue.waiting)
        self._running.set(queue.running)
        self._open.set(self.connections)
        return self.exposition()

    def _record_call(self, call: ModelCallRow, run: GenerationRun) -> None:
        """Count a call, unless an earlier run of this request made it."""
        if call.started_at < run.received_at:
            return
        self._call_seconds.labels(call.role, call.backend).observe(call.seconds)
        self._tokens.labels(call.role, "input").inc(call.input_tokens or 0)
        self._tokens.labels(call.role, "output").inc(call.output_tokens or 0)
        self._cost.labels(call.role).inc(call.cost_usd or 0)


@dataclass
class RequestContextMiddleware:
    """The outermost middleware of the service; `connections`: HTTP requests that may be open."""

    app: ASGIApp
    metrics: ServiceMetrics
    queue: AdmissionQueue
    connections: int
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        client_id = Headers(scope=scope).get("x-request-id", "")
        request_id = client_id if _REQUEST_ID.fullmatch(client_id) else f"req_{uuid4().hex}"
        start, status, method = monotonic(), CLIENT_CLOSED, scope["method"]
        token = REQUEST_ID.set(request_id)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                owner = scope.get("state", {}).get("owner")  # None: there is no valid key
                if owner is not None and scope["path"] in _CREATING and method == "POST":
                    headers.update(self.queue.rate_limit_headers(owner))
            await send(message)

        self.metrics.connections += 1
        try:
            await self._call_app(scope, receive, send_with_id)
        finally:
            self.metrics.connections -= 1
            # As declared, with placeholders instead of ids.
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.http_requests.labels(path, method, status).inc()
            seconds = round(monotonic() - start, 4)
            _log_event("request", method=method, path=path, status=status, seconds=seconds)
            REQUEST_ID.reset(token)

    async def _call_app(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.metrics.connections <= self.connections:
            if not is_health_path(scope["path"]):
                # One begins in a pass of the event loop, so that health checks come between.
                async with self._turn:
                    await asyncio.sleep(0)
            return await self.app(scope, receive, send)
        message = f"{self.connections} requests are open already; try again"
        error = too_many_requests(message, "too_many_connections")
        await error.response()(scope, receive, send)
