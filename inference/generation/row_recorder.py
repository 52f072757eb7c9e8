"""Rows of the lake for a user's request, whether it ran to its end or its process was killed."""

from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from schemas import Row, Table
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

from ..engine.hashing import stable_hash
from ..events import Event, PlanReady, TrajectoryFailed, TrajectoryFinished
from ..roles import Roles, qualified_name
from ..trajectory_recorder import TrajectoryRecorder, plan_rows
from .requests import GenerationRequest

Rows = dict[Table, Sequence[Row]]


class GenerationRowRecorder:
    """The listener that makes a request's rows; its status is `cancelled` until it has ended."""

    def __init__(self, request: GenerationRequest, roles: Roles) -> None:
        self._request, self._roles = request, roles
        self._trajectory = TrajectoryRecorder(
            request, [], roles, request.options, run=request.generation_id
        )
        self._status: GenerationStatus = "cancelled"
        self._error: str | None = None
        self._wasted_draws = 0
        self._started_at, self._start = datetime.now(UTC), monotonic()

    def note(self, event: Event) -> None:
        """Add the next event."""
        match event:
            case PlanReady(plan=plan):
                rows = plan_rows(self._request, plan, qualified_name(self._roles.planner))
                # An id of this request: other requests may get the same plan.
                own_id = {"plan_id": stable_hash("plan", self._request.generation_id)}
                self._trajectory.plan = [row.model_copy(update=own_id) for row in rows]
            case TrajectoryFinished(status=status, wasted_draws=wasted_draws):
                self._wasted_draws = wasted_draws
                self._status = "failed" if status == "quarantined" else status
            case TrajectoryFailed(reason=reason, refused=refused):
                self._status, self._error = "refused" if refused else "failed", reason
        self._trajectory.note(event)

    @property
    def may_be_resumed(self) -> bool:
        """Whether the client may send the same request again to have it finished."""
        return self._request.key is not None and self._status in ("failed", "cancelled")

    def rows(self, calls: Sequence[ModelCallRow]) -> Rows:
        """Rows of every table, given the calls that were made."""
        trajectory = self._trajectory.trajectory(self._error)
        attempts = self._trajectory.attempts()
        generation = _generation_row(
            self._request,
            calls,
            plan_id=trajectory.plan_id,
            trajectory_id=trajectory.trajectory_id,
            status=self._status,
            error=self._error,
            **self._roles.names,
            steps=trajectory.steps,
            attempts=trajectory.attempts,
            wasted_draws=self._wasted_draws,
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


def interrupted_rows(
    request: GenerationRequest, started_at: datetime, calls: Sequence[ModelCallRow]
) -> Rows:
    """The row of a request whose process was killed, and those of the calls in its journal."""
    names: dict[Role, str] = {call.role: f"{call.backend}/{call.model}" for call in calls}
    row = _generation_row(
        request,
        calls,
        plan_id=None,
        trajectory_id=stable_hash("interrupted", request.generation_id),
        status="interrupted",
        error="the process was stopped before it was finished",
        **{role: names.get(role) for role in LOOP_ROLES if role != "scorer"},
        steps=0,
        attempts=sum(call.role == "generator" for call in calls),
        wasted_draws=0,
        images=[],
        seconds=sum(call.seconds for call in calls),
        started_at=started_at,
    )
    return {GENERATIONS: [row], MODEL_CALLS: calls}


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
