"""The listener that turns a request's events into rows of the lake."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from schemas import Row, Table
from schemas.generations import GENERATIONS, GenerationRow, GenerationStatus
from schemas.trajectories import ATTEMPTS, MODEL_CALLS, PLANS, TRAJECTORIES, ModelCallRow, PlanRow

from ..engine.hashing import stable_hash
from ..events import Event, PlanReady, TrajectoryFailed, TrajectoryFinished
from ..plans import plan_rows
from ..roles import Plan, qualified_name
from ..trajectory_recorder import TrajectoryRecorder
from .agent_resolver import ResolvedRoles
from .requests import GenerationRequest

Rows = dict[Table, Sequence[Row]]


@dataclass(frozen=True)
class _Subject:
    prompt_id: str
    shard: str


class GenerationRowRecorder:
    """One request, as far as it got; cancelled unless an event says otherwise."""

    def __init__(self, request: GenerationRequest, cast: ResolvedRoles) -> None:
        self._request, self._cast = request, cast
        self._subject = _Subject(request.prompt_id, request.generation_id)
        self._plans: list[PlanRow] = []
        self._told = self._trajectory(None)
        self._status: GenerationStatus = "cancelled"
        self._error: str | None = None
        self._wasted = 0
        self._started_at, self._begun = datetime.now(UTC), monotonic()

    def note(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case PlanReady(plan=plan):
                self._plans = self._plan_rows(plan)
                self._told = self._trajectory(self._plans[0].plan_id if self._plans else None)
            case TrajectoryFinished(status=status, wasted_draws=wasted):
                self._wasted = wasted
                self._status = "failed" if status == "quarantined" else status
                self._told.note(event)
            case TrajectoryFailed(reason=reason, refused=refused):
                self._status, self._error = "refused" if refused else "failed", reason
            case _:
                self._told.note(event)

    @property
    def may_go_on(self) -> bool:
        """Whether the requester may ask for the same request again, to have it finished."""
        return self._request.key is not None and self._status in ("failed", "cancelled")

    def rows(self, calls: Sequence[ModelCallRow]) -> Rows:
        """Rows of every table, given the calls that were made."""
        return {
            GENERATIONS: [self._generation(calls)],
            PLANS: self._plans,
            TRAJECTORIES: [self._told.trajectory(self._error)],
            ATTEMPTS: self._told.attempts(),
            MODEL_CALLS: calls,
        }

    def _plan_rows(self, plan: Plan) -> list[PlanRow]:
        """Rows under an id of this request's own: others may get the same plan."""
        rows = plan_rows(self._subject, plan, qualified_name(self._cast.roles.planner))
        own = {"plan_id": stable_hash("plan", self._request.generation_id)}
        return [row.model_copy(update=own) for row in rows]

    def _trajectory(self, plan_id: str | None) -> TrajectoryRecorder:
        return TrajectoryRecorder(
            self._subject,
            plan_id,
            self._cast.roles,
            self._request.rules,
            run=self._request.generation_id,
        )

    def _generation(self, calls: Sequence[ModelCallRow]) -> GenerationRow:
        request, rules, told = self._request, self._request.rules, self._told
        trajectory = told.trajectory(self._error)
        return GenerationRow(
            generation_id=request.generation_id,
            shard=self._subject.shard,
            door=request.door,
            request_key=request.key,
            text=request.text,
            input_images=[picture.sha256 for picture in request.pictures],
            prompt_id=request.prompt_id,
            plan_id=trajectory.plan_id,
            trajectory_id=trajectory.trajectory_id,
            status=self._status,
            error=self._error,
            **self._cast.names,
            t_max=rules.t_max,
            on_exhausted=rules.on_exhausted,
            conditioning=rules.conditioning,
            candidates=rules.candidates,
            seed=rules.seed,
            steps=trajectory.steps,
            attempts=trajectory.attempts,
            wasted_draws=self._wasted,
            images=[attempt.image for attempt in told.attempts() if attempt.chosen],
            cost_usd=total_cost(calls),
            seconds=monotonic() - self._begun,
            started_at=self._started_at,
        )


def total_cost(calls: Sequence[ModelCallRow]) -> float | None:
    """What calls cost, in USD; None: some are not priced."""
    prices = [call.cost_usd for call in calls]
    known = [price for price in prices if price is not None]
    return sum(known) if len(known) == len(prices) else None
