"""Logs, one JSON object a line; without users' prompts unless a setting asks for them."""

import logging
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

from ..generation.event_log import RunEvent, RunStarted
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
