"""From a request to its events, every call journaled and every row kept."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from schemas import BadImageError, FoundryError
from warehouse import Home

from ..engine.call_index import CallIndex
from ..engine.calls import CallSite, ModelCalls
from ..engine.retry import CallFailedError, RetryingCaller, summarize_error
from ..events import Event, PlanReady, TrajectoryFailed
from ..loop import Loop, PlannedRequest
from ..roles import PlanRequest, UnusableAnswerError
from ..settings import Limits
from .agent_resolver import ResolvedRoles
from .generation_sink import GenerationSink, LakeSink
from .recovery import InterruptedRequest, interrupted_rows
from .requests import GenerationRequest
from .row_recorder import GenerationRowRecorder

ASSET = "generations"

_log = logging.getLogger(__name__)


class GenerationRunner:
    """Tells stories, many at a time, whose calls share one generator pool and one of agents.

    A context manager: what was told is in the lake when it ends.

    Args:
        archive: where the rows go, if not to partitions of the requests' own.
    """

    def __init__(self, home: Home, limits: Limits, archive: GenerationSink | None = None) -> None:
        self._home, self._caller = home, RetryingCaller(limits)
        self._archive = archive or LakeSink(home)

    async def __aenter__(self) -> "GenerationRunner":
        self._flushing = asyncio.create_task(self._archive.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._flushing.cancel()
        await self._archive.flush()

    async def tell(
        self, request: GenerationRequest, cast: ResolvedRoles
    ) -> AsyncGenerator[Event, None]:
        """The events of a request, `Finished` or `TrajectoryFailed` last; closed early, it is cancelled.

        The same `generation_id` again, with the same players, finds what was finished before; its
        rows take the place of the earlier ones.

        Raises:
            StorageError: the lake cannot be written, or another process tells this request.
        """
        record = GenerationRowRecorder(request, cast)
        async with self._calls(request, cast) as calls:
            if calls.ledger():
                await self._archive.forget(request.generation_id)
            try:
                async with aclosing(self._events(request, calls)) as events:
                    async for event in events:
                        record.note(event)
                        yield event
            finally:
                own = request.generation_id if record.may_go_on else None
                self._archive.add(record.rows(calls.ledger()), own)

    def keep_interrupted(self, request: InterruptedRequest) -> None:
        """Take in what a killed process left of a request that it told."""
        calls = CallIndex.read(self._home.journal(ASSET, request.generation_id)).ledger()
        own = request.generation_id if request.key else None
        self._archive.add(interrupted_rows(request, calls), own)

    async def erase(self, generation_id: str) -> None:
        """Forget what a request that is over said and was told; what it cost is kept.

        What the lake has of it goes with the next `flush`, at the latest.

        Raises:
            StorageError: the lake cannot be read or written.
        """
        await self._archive.erase(generation_id)
        await asyncio.to_thread(self._home.journal(ASSET, generation_id).remove)

    async def flush(self) -> None:
        """Have the lake hold everything that is over."""
        await self._archive.flush()

    async def _events(
        self, request: GenerationRequest, calls: ModelCalls
    ) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(self._told(request, calls)) as events:
                async for event in events:
                    yield event
        except (UnusableAnswerError, BadImageError) as error:
            yield TrajectoryFailed(summarize_error(error), refused=True)
        except (CallFailedError, FoundryError) as error:
            yield TrajectoryFailed(summarize_error(error), refused=False)
        except Exception:
            _log.exception("request %s met a bug", request.generation_id)
            yield TrajectoryFailed("something went wrong here; the log says what", refused=False)

    async def _told(
        self, request: GenerationRequest, calls: ModelCalls
    ) -> AsyncGenerator[Event, None]:
        for picture in request.pictures:
            await asyncio.to_thread(self._home.images.put, picture)
        question = PlanRequest(request.text, request.pictures)
        planned = await calls.plan(CallSite(request.prompt_id), question)
        yield PlanReady(planned.answer, planned.call)
        story = PlannedRequest(request.prompt_id, planned.answer, request.pictures)
        rules = request.rules
        loop = Loop(story, calls, rules, rules.candidates, rules.draw_ahead)
        async with aclosing(loop.events()) as events:
            async for event in events:
                yield event

    @asynccontextmanager
    async def _calls(
        self, request: GenerationRequest, cast: ResolvedRoles
    ) -> AsyncIterator[ModelCalls]:
        calls = ModelCalls(self._home, ASSET, request.generation_id, cast.roles, self._caller)
        await asyncio.to_thread(calls.__enter__)  # a lake far away takes its time
        try:
            yield calls
        finally:
            calls.__exit__()
