"""Runs a user's request: yields its events, journals its calls and hands its rows to a sink."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, aclosing
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Literal

from schemas import BadImageError, FoundryError, StorageError
from schemas.generations import GENERATIONS, GenerationRow, GenerationStatus
from schemas.trajectories import (
    ATTEMPTS,
    LOOP_ROLES,
    MODEL_CALLS,
    PLANS,
    TRAJECTORIES,
    ModelCallRow,
    Role,
)
from warehouse import Home

from ..calls.ask import CallSite, ModelCalls
from ..calls.call_index import CallIndex
from ..calls.hashing import stable_hash
from ..calls.retry import CallFailedError, RetryingCaller, summarize_error
from ..events import (
    Ending,
    Event,
    PlanReady,
    RequestUnderstood,
    TrajectoryFailed,
    TrajectoryFinished,
    TrajectoryRecorder,
    plan_rows,
)
from ..loop import Loop
from ..roles import (
    Generator,
    LimitedGenerator,
    PlanRequest,
    Roles,
    UnusableAnswerError,
    qualified_name,
)
from ..settings import Limits
from .generation_sink import LakeSink
from .requests import Entry, GenerationRequest, Rows, dump_request, load_request
from .trajectory_view import status_of

ASSET = "generations"
BUG = TrajectoryFailed("internal error; the log has the details", refused=False)

PlanCheck = Callable[[PlanReady], TrajectoryFailed | None]
"""The end of a request whose plan is rejected; None: it is drawn."""

_log = logging.getLogger(__name__)


class GenerationRunner:
    """Runs many requests concurrently; their calls share one generator pool and one of agents.

    A context manager: the rows of finished requests are in the lake when it ends. Its methods raise
    StorageError when the lake cannot be read or written.

    Args:
        collected: takes the rows of each request instead, for a caller that writes them itself.
    """

    def __init__(self, home: Home, limits: Limits, collected: list[Rows] | None = None) -> None:
        self._home, self._caller = home, RetryingCaller(limits)
        self._sink, self._collected = LakeSink(home), collected
        self._waiting: dict[str, datetime] = {}  # accepted requests -> when

    async def __aenter__(self) -> "GenerationRunner":
        await asyncio.to_thread(self._recover)
        self._flush_task = asyncio.create_task(self._sink.flush_periodically())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._flush_task.cancel()
        await self._sink.close()

    @property
    def problem(self) -> str | None:
        """Why rows cannot be written to the lake at the moment; None: they can."""
        return self._sink.problem

    def accept(self, request: GenerationRequest) -> None:
        """Have a request known to the next process before it runs; `run` or `end_waiting` follows.

        Raises:
            StorageError: the home cannot be written; the request is not accepted.
        """
        started_at = datetime.now(UTC)
        self._sink.note_unfinished(_log_entry("accepted", request, started_at))
        self._waiting[request.generation_id] = started_at

    def end_waiting(self, request: GenerationRequest, ending: Ending | None) -> None:
        """Add the row of an accepted request, unless it ran; `ending` None: it has no row."""
        started_at = self._waiting.pop(request.generation_id, None)
        if started_at is None:
            return
        rows: Rows = {}
        if ending and not request.resumes:  # its earlier run has a row, with the calls
            status, error = status_of(ending)
            row = _row_without_result(request, [], started_at, status=status, error=error)
            rows = {GENERATIONS: [row]}
        self._add(request, rows, resumable=False)

    async def run(
        self, request: GenerationRequest, roles: Roles, check_plan: PlanCheck | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of a request, the last one `TrajectoryFinished` or `TrajectoryFailed`.

        Before the last one its rows are in the log, so that a kill does not lose what a client has
        seen to end. A plan that `check_plan` rejects is not drawn. Closing the generator early
        cancels the request. One with the `generation_id` of an earlier one and the same roles
        reuses its finished calls; its rows replace the earlier ones.

        Raises:
            StorageError: the lake cannot be written, or another process runs this request.
        """
        recorder = _RowRecorder(request, roles)
        calls = ModelCalls(self._home, ASSET, request.generation_id, roles, self._caller)
        await asyncio.to_thread(calls.__enter__)  # reads the journal, which may be remote
        with ExitStack() as stack:
            stack.push(calls)
            if self._collected is None:
                await self._begin(request, calls.ledger())
            try:
                async with aclosing(
                    self._events(request, roles.generator, calls, check_plan)
                ) as events:
                    async for event in events:
                        recorder.note(event)
                        if not recorder.ending:
                            yield event
            finally:
                rows = recorder.rows(calls.ledger())
                if self._collected is None:
                    self._add(request, rows, recorder.is_resumable)
                else:
                    self._collected.append(rows)
        if recorder.ending:
            yield recorder.ending

    async def erase(self, generation_id: str) -> None:
        """Delete the content of a finished request, by the next `flush` at the latest.

        Its calls stay in the ledger.
        """
        await self._sink.erase(generation_id)
        await asyncio.to_thread(self._home.journal(ASSET, generation_id).remove)

    async def flush(self) -> None:
        await self._sink.flush()

    def _recover(self) -> None:
        """Write what killed processes left: rows, and running requests as interrupted."""
        if interrupted := self._sink.recover(self._interrupted_rows):
            _log.warning("%d requests were interrupted when their process was killed", interrupted)

    def _interrupted_rows(self, entry: Entry) -> Rows:
        """The row of a request whose process was killed, and those of its journal's calls."""
        content = entry.content
        request = load_request(content["request"], self._home.images)
        calls: list[ModelCallRow] = []
        if entry.kind == "started" or request.resumes:
            calls = CallIndex.read(self._home.journal(ASSET, request.generation_id)).ledger()
        row = _row_without_result(
            request,
            calls,
            datetime.fromisoformat(content["started_at"]),
            status="interrupted",
            error="the process was stopped before it was finished",
        )
        return {GENERATIONS: [row], MODEL_CALLS: calls}

    async def _begin(self, request: GenerationRequest, calls: Sequence[ModelCallRow]) -> None:
        self._sink.note_unfinished(_log_entry("started", request, datetime.now(UTC)))
        # It no longer waits: if it ends while its earlier rows are being deleted, the next process
        # finds it started and restores its calls.
        self._waiting.pop(request.generation_id, None)
        if request.resumes or calls:
            await self._sink.discard(request.generation_id, [call.call_id for call in calls])

    def _add(self, request: GenerationRequest, rows: Rows, resumable: bool) -> None:
        try:
            self._sink.add(rows, request.generation_id, resumable)
        except StorageError as error:  # the next flush tries again
            _log.error("rows of request %s are in memory only: %s", request.generation_id, error)

    async def _events(
        self,
        request: GenerationRequest,
        generator: Generator,
        calls: ModelCalls,
        check_plan: PlanCheck | None,
    ) -> AsyncGenerator[Event, None]:
        prompt_id, images, options = request.prompt_id, request.images, request.options
        try:
            for image in images:
                await asyncio.to_thread(self._home.images.put, image)
            plan_request = PlanRequest(request.text, images)
            if isinstance(generator, LimitedGenerator):
                scope = await asyncio.to_thread(generator.scope, plan_request)
                yield RequestUnderstood(scope)
                if scope.refusal:
                    yield TrajectoryFailed(scope.refusal_text, refused=True)
                    return
            plan, call = await calls.plan(CallSite(prompt_id), plan_request)
            if isinstance(generator, LimitedGenerator):
                planned = await asyncio.to_thread(generator.scope, plan_request, plan)
                if planned != scope:
                    yield RequestUnderstood(planned)
            yield PlanReady(plan, call)
            if check_plan and (failure := check_plan(PlanReady(plan, call))):
                yield failure
                return
            loop = Loop(
                calls, options, prompt_id, plan, images, options.candidates, options.draw_ahead
            )
            async with aclosing(loop.events()) as events:
                async for event in events:
                    yield event
        except (UnusableAnswerError, BadImageError) as error:
            yield TrajectoryFailed(summarize_error(error), refused=True)
        except (CallFailedError, FoundryError) as error:
            if isinstance(error, StorageError):
                _log.error("request %s cannot be stored: %s", request.generation_id, error)
            yield TrajectoryFailed(summarize_error(error), refused=False)
        except Exception:
            _log.exception("unexpected error in request %s", request.generation_id)
            yield BUG


class _RowRecorder:
    """The listener that makes a request's rows; its status is `cancelled` until it has ended."""

    def __init__(self, request: GenerationRequest, roles: Roles) -> None:
        self._request, self._roles = request, roles
        self._trajectory = TrajectoryRecorder(
            request, [], roles, request.options, run=request.generation_id
        )
        self.ending: TrajectoryFinished | TrajectoryFailed | None = None
        self._started_at, self._start = datetime.now(UTC), monotonic()

    def note(self, event: Event) -> None:
        if isinstance(event, PlanReady):
            rows = plan_rows(self._request, event.plan, qualified_name(self._roles.planner))
            # An id of this request: other requests may get the same plan.
            own_id = {"plan_id": stable_hash("plan", self._request.generation_id)}
            self._trajectory.plan = [row.model_copy(update=own_id) for row in rows]
        if isinstance(event, TrajectoryFinished | TrajectoryFailed):
            self.ending = event
        self._trajectory.note(event)

    @property
    def is_resumable(self) -> bool:
        """Whether the client may send it again to have it finished."""
        return self._request.key is not None and self._outcome[0] in ("failed", "cancelled")

    @property
    def _outcome(self) -> tuple[GenerationStatus, str | None]:
        return status_of(self.ending) if self.ending else ("cancelled", None)

    def rows(self, calls: Sequence[ModelCallRow]) -> Rows:
        status, error = self._outcome
        trajectory = self._trajectory.trajectory(error)
        attempts = self._trajectory.attempts()
        generation = _generation_row(
            self._request,
            calls,
            plan_id=trajectory.plan_id,
            trajectory_id=trajectory.trajectory_id,
            status=status,
            error=error,
            **self._roles.names,
            steps=trajectory.steps,
            attempts=trajectory.attempts,
            wasted_draws=getattr(self.ending, "wasted_draws", 0),
            images=[attempt.image for attempt in attempts if attempt.chosen],
            seconds=monotonic() - self._start,
            started_at=self._started_at,
        )
        return {
            GENERATIONS: [generation],
            PLANS: self._trajectory.plan,
            TRAJECTORIES: [trajectory],
            ATTEMPTS: attempts,
            MODEL_CALLS: calls,
        }


def _log_entry(
    kind: Literal["accepted", "started"], request: GenerationRequest, started_at: datetime
) -> Entry:
    """What the log has of an unfinished request."""
    content = {"request": dump_request(request), "started_at": started_at.isoformat()}
    return Entry(kind, request.generation_id, content)


def _row_without_result(
    request: GenerationRequest, calls: Sequence[ModelCallRow], started_at: datetime, **columns: Any
) -> GenerationRow:
    """The row of a request that did not run to its end: of its trajectory there is none."""
    names: dict[Role, str] = {call.role: f"{call.backend}/{call.model}" for call in calls}
    return _generation_row(
        request,
        calls,
        plan_id=None,
        trajectory_id=stable_hash("interrupted", request.generation_id),
        **{role: names.get(role) for role in LOOP_ROLES if role != "scorer"},
        steps=0,
        attempts=sum(call.role == "generator" for call in calls),
        wasted_draws=0,
        images=[],
        seconds=sum(call.seconds for call in calls),
        started_at=started_at,
        **columns,
    )


def _generation_row(
    request: GenerationRequest, calls: Sequence[ModelCallRow], **columns: Any
) -> GenerationRow:
    """The row of a request; its cost is null where a call has no price."""
    prices = [call.cost_usd for call in calls]
    known = [price for price in prices if price is not None]
    options = ("t_max", "on_exhausted", "conditioning", "candidates", "seed")
    return GenerationRow(
        generation_id=request.generation_id,
        shard=request.shard,
        channel=request.channel,
        request_key=request.key,
        text=request.text,
        input_images=[image.sha256 for image in request.images],
        prompt_id=request.prompt_id,
        **{name: getattr(request.options, name) for name in options},
        cost_usd=sum(known) if len(known) == len(prices) else None,
        **columns,
    )
