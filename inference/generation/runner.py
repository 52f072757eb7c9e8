"""Runs a user's request: yields its events, journals its calls and hands its rows to a sink."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from datetime import datetime

from schemas import BadImageError, FoundryError
from warehouse import Home

from ..engine.call_index import CallIndex
from ..engine.calls import CallSite, ModelCalls
from ..engine.retry import CallFailedError, RetryingCaller, summarize_error
from ..events import Event, PlanReady, TrajectoryFailed
from ..loop import Loop, PlannedRequest
from ..roles import PlanRequest, Roles, UnusableAnswerError
from ..settings import Limits
from .generation_sink import BufferSink, LakeSink
from .requests import GenerationRequest
from .row_recorder import GenerationRowRecorder, interrupted_rows

ASSET = "generations"
BUG = TrajectoryFailed("internal error; the log has the details", refused=False)

_log = logging.getLogger(__name__)


class GenerationRunner:
    """Runs many requests concurrently; their calls share one generator pool and one of agents.

    A context manager: the rows of finished requests are in the lake when it ends.

    Args:
        sink: takes the rows; None: a `LakeSink`.
    """

    def __init__(self, home: Home, limits: Limits, sink: BufferSink | None = None) -> None:
        self._home, self._caller = home, RetryingCaller(limits)
        self._sink = sink or LakeSink(home)

    async def __aenter__(self) -> "GenerationRunner":
        self._flush_task = asyncio.create_task(self._sink.flush_periodically())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._flush_task.cancel()
        await self._sink.flush()

    async def run(self, request: GenerationRequest, roles: Roles) -> AsyncGenerator[Event, None]:
        """The events of a request, the last one `TrajectoryFinished` or `TrajectoryFailed`.

        Closing the generator early cancels the request. A request with the `generation_id` of an
        earlier one and the same roles reuses its finished calls, and its rows replace the earlier
        ones.

        Raises:
            StorageError: the lake cannot be written, or another process runs this request.
        """
        recorder = GenerationRowRecorder(request, roles)
        calls = ModelCalls(self._home, ASSET, request.generation_id, roles, self._caller)
        await asyncio.to_thread(calls.__enter__)  # reads the journal, which may be remote
        with ExitStack() as stack:
            stack.push(calls)
            if calls.ledger():
                await self._sink.discard(request.generation_id)
            try:
                async with aclosing(self._events(request, calls)) as events:
                    async for event in events:
                        recorder.note(event)
                        yield event
            finally:
                replaceable_id = request.generation_id if recorder.may_be_resumed else None
                self._sink.add(recorder.rows(calls.ledger()), replaceable_id)

    def record_interrupted(self, request: GenerationRequest, started_at: datetime) -> None:
        """Write the rows of a request whose process was killed."""
        calls = CallIndex.read(self._home.journal(ASSET, request.generation_id)).ledger()
        replaceable_id = request.generation_id if request.key else None
        self._sink.add(interrupted_rows(request, started_at, calls), replaceable_id)

    async def erase(self, generation_id: str) -> None:
        """Delete the content of a finished request; its calls stay in the ledger.

        Rows in the lake are deleted by the next `flush` at the latest.

        Raises:
            StorageError: the lake cannot be read or written.
        """
        await self._sink.erase(generation_id)
        await asyncio.to_thread(self._home.journal(ASSET, generation_id).remove)

    async def flush(self) -> None:
        """Write the rows of all finished requests to the lake.

        Raises:
            StorageError: the lake cannot be written; the rows are kept for the next flush.
        """
        await self._sink.flush()

    async def _events(
        self, request: GenerationRequest, calls: ModelCalls
    ) -> AsyncGenerator[Event, None]:
        try:
            for image in request.images:
                await asyncio.to_thread(self._home.images.put, image)
            plan_request = PlanRequest(request.text, request.images)
            planned = await calls.plan(CallSite(request.prompt_id), plan_request)
            yield PlanReady(planned.answer, planned.call)
            options = request.options
            plan = PlannedRequest(request.prompt_id, planned.answer, request.images)
            loop = Loop(plan, calls, options, options.candidates, options.draw_ahead)
            async with aclosing(loop.events()) as events:
                async for event in events:
                    yield event
        except (UnusableAnswerError, BadImageError) as error:
            yield TrajectoryFailed(summarize_error(error), refused=True)
        except (CallFailedError, FoundryError) as error:
            yield TrajectoryFailed(summarize_error(error), refused=False)
        except Exception:
            _log.exception("unexpected error in request %s", request.generation_id)
            yield BUG
