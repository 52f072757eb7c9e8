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
    PlanRow,
    Role,
)

from ..engine.hashing import stable_hash
from ..events import Event, PlanReady, TrajectoryFailed, TrajectoryFinished
from ..plans import plan_rows
from ..roles import Plan, Roles, qualified_name
from ..trajectory_recorder import TrajectoryRecorder
from .requests import GenerationRequest

Rows = dict[Table, Sequence[Row]]


class GenerationRowRecorder:
    """The listener that makes a request's rows; its status is `cancelled` until it has ended."""

    def __init__(self, request: GenerationRequest, roles: Roles) -> None:
        self._request, self._roles = request, roles
        self._plans: list[PlanRow] = []
        self._trajectory = self._trajectory_recorder(None)
        self._status: GenerationStatus = "cancelled"
        self._error: str | None = None
        self._wasted_draws = 0
        self._started_at, self._start = datetime.now(UTC), monotonic()

    def note(self, event: Event) -> None:
        """Add the next event."""
        match event:
            case PlanReady(plan=plan):
                self._plans = self._plan_rows(plan)
                plan_id = self._plans[0].plan_id if self._plans else None
                self._trajectory = self._trajectory_recorder(plan_id)
            case TrajectoryFinished(status=status, wasted_draws=wasted_draws):
                self._wasted_draws = wasted_draws
                self._status = "failed" if status == "quarantined" else status
                self._trajectory.note(event)
            case TrajectoryFailed(reason=reason, refused=refused):
                self._status, self._error = "refused" if refused else "failed", reason
            case _:
                self._trajectory.note(event)

    @property
    def may_be_resumed(self) -> bool:
        """Whether the client may send the same request again to have it finished."""
        return self._request.key is not None and self._status in ("failed", "cancelled")

    def rows(self, calls: Sequence[ModelCallRow]) -> Rows:
        """Rows of every table, given the calls that were made."""
        return {
            GENERATIONS: [self._generation(calls)],
            PLANS: self._plans,
            TRAJECTORIES: [self._trajectory.trajectory(self._error)],
            ATTEMPTS: self._trajectory.attempts(),
            MODEL_CALLS: calls,
        }

    def _plan_rows(self, plan: Plan) -> list[PlanRow]:
        """Rows with an id of this request: other requests may get the same plan."""
        rows = plan_rows(self._request, plan, qualified_name(self._roles.planner))
        plan_id = stable_hash("plan", self._request.generation_id)
        return [row.model_copy(update={"plan_id": plan_id}) for row in rows]

    def _trajectory_recorder(self, plan_id: str | None) -> TrajectoryRecorder:
        request = self._request
        return TrajectoryRecorder(
            request, plan_id, self._roles, request.options, run=request.generation_id
        )

    def _generation(self, calls: Sequence[ModelCallRow]) -> GenerationRow:
        trajectory = self._trajectory.trajectory(self._error)
        attempts = self._trajectory.attempts()
        return GenerationRow(
            **_request_columns(self._request),
            plan_id=trajectory.plan_id,
            trajectory_id=trajectory.trajectory_id,
            status=self._status,
            error=self._error,
            **self._roles.names,
            steps=trajectory.steps,
            attempts=trajectory.attempts,
            wasted_draws=self._wasted_draws,
            images=[attempt.image for attempt in attempts if attempt.chosen],
            cost_usd=total_cost(calls),
            seconds=monotonic() - self._start,
            started_at=self._started_at,
        )


def interrupted_rows(
    request: GenerationRequest, started_at: datetime, calls: Sequence[ModelCallRow]
) -> Rows:
    """The row of a request whose process was killed, and those of the calls in its journal."""
    names: dict[Role, str] = {call.role: f"{call.backend}/{call.model}" for call in calls}
    row = GenerationRow(
        **_request_columns(request),
        plan_id=None,
        trajectory_id=stable_hash("interrupted", request.generation_id),
        status="interrupted",
        error="the process was stopped before it was finished",
        **{role: names.get(role) for role in LOOP_ROLES if role != "scorer"},
        steps=0,
        attempts=sum(call.role == "generator" for call in calls),
        wasted_draws=0,
        images=[],
        cost_usd=total_cost(calls),
        seconds=sum(call.seconds for call in calls),
        started_at=started_at,
    )
    return {GENERATIONS: [row], MODEL_CALLS: calls}


def total_cost(calls: Sequence[ModelCallRow]) -> float | None:
    """Cost of calls in USD; None: some have no price."""
    prices = [call.cost_usd for call in calls]
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None


def _request_columns(request: GenerationRequest) -> dict[str, Any]:
    options = ("t_max", "on_exhausted", "conditioning", "candidates", "seed")
    return {
        "generation_id": request.generation_id,
        "shard": request.shard,
        "channel": request.channel,
        "request_key": request.key,
        "text": request.text,
        "input_images": [image.sha256 for image in request.images],
        "prompt_id": request.prompt_id,
        **{name: getattr(request.options, name) for name in options},
    }
