"""Plans and trajectories as rows of `plans`, `trajectories` and `attempts`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Protocol

from schemas.trajectories import AttemptRow, PlanRow, TrajectoryRow, TrajectoryStatus

from .calls.hashing import stable_hash
from .events import (
    AttemptJudged,
    Event,
    StepAccepted,
    StepExhausted,
    TextEmitted,
    TrajectoryFinished,
)
from .roles import Plan, PlanStep, Roles, qualified_name
from .settings import LoopSettings


class PromptRef(Protocol):
    """Where rows belong: a prompt of the bank, or a user's request."""

    @property
    def prompt_id(self) -> str: ...

    @property
    def shard(self) -> str: ...


def plan_rows(prompt: PromptRef, plan: Plan, planner: str) -> list[PlanRow]:
    """A row per step; the plan's id is a hash of prompt, planner and all texts of the steps."""
    steps = [asdict(step) for step in plan.steps]
    plan_id = stable_hash("plan", prompt.prompt_id, planner, steps)
    return [
        PlanRow(
            prompt_id=prompt.prompt_id,
            plan_id=plan_id,
            shard=prompt.shard,
            planner=planner,
            reasoning=plan.reasoning,
            **step,
        )
        for step in steps
    ]


def plan_from_rows(rows: Sequence[PlanRow]) -> Plan:
    """The plan of `plan_rows`; its rows in any order."""
    steps = [
        PlanStep(**row.model_dump(include=set(PlanStep.__dataclass_fields__)))
        for row in sorted(rows, key=lambda row: row.step_number)
    ]
    return Plan(tuple(steps), rows[0].reasoning if rows else "")


@dataclass
class TrajectoryRecorder:
    """The rows of one trajectory, as far as it got.

    Its id is a hash of the plan, all loop settings and the models that take part: the same inputs
    make the same trajectory.
    """

    prompt: PromptRef
    plan: Sequence[PlanRow]  # none where there is no plan; final once there is an attempt
    roles: Roles
    settings: LoopSettings
    run: str | None = None  # makes the id different for every run
    _attempts: dict[tuple[int, int], AttemptRow] = field(default_factory=dict, init=False)
    _status: TrajectoryStatus = field(default="quarantined", init=False)
    _steps: int = field(default=0, init=False)

    @property
    def plan_id(self) -> str | None:
        return self.plan[0].plan_id if self.plan else None

    @cached_property
    def trajectory_id(self) -> str:
        roles = self.roles
        scorer = qualified_name(roles.scorer) if self.settings.on_exhausted == "best" else None
        models = [qualified_name(roles.generator), qualified_name(roles.critic), scorer]
        inputs = [self.prompt.prompt_id, self.plan_id, self.settings.model_dump(), models]
        return stable_hash("trajectory", *inputs, *([self.run] if self.run else []))

    def note(self, event: Event) -> None:
        match event:
            case AttemptJudged():
                self._add(event, chosen=False)
            case StepAccepted(chosen=chosen) | StepExhausted(chosen=AttemptJudged() as chosen):
                self._add(chosen, chosen=True)
                self._steps += 1
            case TextEmitted():
                self._steps += 1
            case TrajectoryFinished(status=status):
                self._status = status

    def attempts(self) -> list[AttemptRow]:
        return list(self._attempts.values())

    def trajectory(self, error: str | None) -> TrajectoryRow:
        return TrajectoryRow(
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt.prompt_id,
            plan_id=self.plan_id,
            shard=self.prompt.shard,
            status=self._status,
            on_exhausted=self.settings.on_exhausted,
            t_max=self.settings.t_max,
            steps=self._steps,
            attempts=len(self._attempts),
            error=error,
        )

    def _add(self, attempt: AttemptJudged, chosen: bool) -> None:
        draw, verdict = attempt.draw, attempt.verdict
        self._attempts[draw.step.step_number, draw.iteration] = AttemptRow(
            trajectory_id=self.trajectory_id,
            prompt_id=self.prompt.prompt_id,
            shard=self.prompt.shard,
            step_number=draw.step.step_number,
            iteration=draw.iteration,
            prompt=draw.prompt,
            source_image=draw.source.sha256 if draw.source else None,
            image=draw.image.sha256,
            seed=draw.seed,
            accepted=verdict.accepted,
            chosen=chosen,
            refined_prompt="" if verdict.accepted else verdict.refined_prompt,
            reasoning=verdict.reasoning,
            generator=qualified_name(self.roles.generator),
            critic=qualified_name(self.roles.critic),
            generator_seconds=draw.call.seconds,
            critic_seconds=attempt.call.seconds,
        )
