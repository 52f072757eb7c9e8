"""Conversion between plans and rows of the `plans` table."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Protocol

from schemas.trajectories import PlanRow

from .engine.hashing import stable_hash
from .roles import Plan, PlanStep


class PromptRef(Protocol):
    """Where rows belong: a prompt of the bank, or a user's request."""

    @property
    def prompt_id(self) -> str: ...

    @property
    def shard(self) -> str: ...


def plan_rows(prompt: PromptRef, plan: Plan, planner: str) -> list[PlanRow]:
    """A row per step; the plan's id is a hash of prompt, planner and all texts of the steps."""
    plan_id = stable_hash("plan", prompt.prompt_id, planner, [asdict(step) for step in plan.steps])
    return [
        PlanRow(
            prompt_id=prompt.prompt_id,
            plan_id=plan_id,
            shard=prompt.shard,
            planner=planner,
            reasoning=plan.reasoning,
            **asdict(step),
        )
        for step in plan.steps
    ]


def plan_from_rows(rows: Sequence[PlanRow]) -> Plan:
    """The plan of `plan_rows`. `rows` are the steps of one plan, in any order."""
    fields = PlanStep.__dataclass_fields__
    steps = [
        PlanStep(**{name: getattr(row, name) for name in fields})
        for row in sorted(rows, key=lambda row: row.step_number)
    ]
    return Plan(tuple(steps), rows[0].reasoning)
