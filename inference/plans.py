"""Plans as the loop follows them, and as the `plans` table keeps them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Protocol

from schemas.trajectories import PlanRow

from .engine.hashing import stable_hash
from .roles import Plan, PlanStep


class Subject(Protocol):
    """What a story is told of: a prompt of the bank, or a user's request."""

    @property
    def prompt_id(self) -> str:
        """Its id."""

    @property
    def shard(self) -> str:
        """Where its rows belong."""


def plan_rows(prompt: Subject, plan: Plan, planner: str) -> list[PlanRow]:
    """A row per step; the plan's id covers prompt, planner and every word of the plan."""
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
    """The plan that `plan_rows` took apart. `rows` are the steps of one plan, in any order."""
    fields = PlanStep.__dataclass_fields__
    steps = [
        PlanStep(**{name: getattr(row, name) for name in fields})
        for row in sorted(rows, key=lambda row: row.step_number)
    ]
    return Plan(tuple(steps), rows[0].reasoning)


def by_prompt(rows: Iterable[PlanRow]) -> dict[str, list[PlanRow]]:
    """Every prompt's plan; the table holds one per prompt."""
    plans: dict[str, list[PlanRow]] = defaultdict(list)
    for row in rows:
        plans[row.prompt_id].append(row)
    return dict(plans)
