"""Trajectories with all that is shown of them: read from the lake, and good examples picked."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView
from schemas import FoundryError, Table
from schemas.prompts import PROMPTS, PromptRow
from schemas.trajectories import (
    ATTEMPTS,
    PLANS,
    SCORES,
    TRAJECTORIES,
    AttemptRow,
    PlanRow,
    ScoreRow,
    TrajectoryRow,
)
from warehouse import Home, ImageStore
from warehouse.storage import safe_name

# trajectory, step, iteration
AttemptKey = tuple[str, int, int]


_COPIED_COLUMNS = {"prompt", "accepted", "chosen", "reasoning", "refined_prompt"}
# Complete trajectories, preferably of three to seven steps with one to three rejected attempts,
# best scores first; the first of every category comes before the second of any.
_SHOWCASE = """
    with finished as (
        select trajectory_id, prompt_id, steps,
               count(*) filter (not accepted) as rejected,
               min(overall) filter (chosen) as worst
        from trajectories
        join attempts using (trajectory_id, prompt_id)
        left join (select trajectory_id, step_number, iteration, overall from scores)
            using (trajectory_id, step_number, iteration)
        where status = 'complete' and {shard}
        group by all
    ),
    ranked as (
        select trajectory_id, category, row_number() over (
            partition by category
            order by not steps between 3 and 7, not rejected between 1 and 3,
                     len(input_images) > 0, worst desc nulls last, trajectory_id
        ) as rank
        from finished join prompts using (prompt_id)
    )
    select trajectory_id from ranked order by rank, category limit {count}
"""


def pick_showcase(home: Home, count: int, shard: str | None = None) -> list[str]:
    """Ids of at most `count` trajectories (of one shard) worth showing, of many categories."""
    from warehouse import query

    condition = f"trajectories.shard = '{safe_name(shard, 'shard')}'" if shard else "true"
    sql = _SHOWCASE.format(count=int(count), shard=condition)
    return query(sql, home)["trajectory_id"].tolist()


def load_trajectories(home: Home, trajectory_ids: Sequence[str]) -> list[TrajectoryView]:
    """The trajectories with these ids, in their order.

    Raises:
        FoundryError: an id is unknown.
        BadImageError: an image is missing or damaged.
    """
    reader = _TrajectoryReader(home, trajectory_ids)
    return [reader.view(trajectory_id) for trajectory_id in trajectory_ids]


def step_views(
    images: ImageStore,
    plan: Sequence[PlanRow],
    attempts: Iterable[AttemptRow],
    overall: Mapping[AttemptKey, float],
) -> tuple[StepView, ...]:
    """The steps of a plan with the attempts of one trajectory.

    Args:
        overall: scores of attempts (0-10), where there are any.

    Raises:
        BadImageError: an image is missing or damaged.
    """
    by_step: dict[int, list[AttemptView]] = defaultdict(list)
    for row in sorted(attempts, key=lambda row: row.iteration):
        attempt = AttemptView(
            image=images.get(row.image),
            overall=overall.get((row.trajectory_id, row.step_number, row.iteration)),
            **row.model_dump(include=_COPIED_COLUMNS),
        )
        by_step[row.step_number].append(attempt)
    return tuple(
        StepView(
            number=step.step_number,
            name=step.step_name,
            caption=step.auxiliary_text or step.instruction or "",
            attempts=tuple(by_step[step.step_number]),
        )
        for step in plan
    )


class _TrajectoryReader:
    """Reads the rows of a few trajectories once, from their shards only."""

    def __init__(self, home: Home, trajectory_ids: Sequence[str]) -> None:
        self._home = home
        trajectories = _rows(home, TRAJECTORIES, "trajectory_id", trajectory_ids)
        self._trajectories: dict[str, TrajectoryRow] = {t.trajectory_id: t for t in trajectories}
        shards = sorted({t.shard for t in trajectories})
        prompts = _rows(home, PROMPTS, "prompt_id", [t.prompt_id for t in trajectories], shards)
        plan_ids = [t.plan_id for t in trajectories if t.plan_id]
        self._prompts: dict[str, PromptRow] = {p.prompt_id: p for p in prompts}
        self._plans: dict[str, list[PlanRow]] = defaultdict(list)
        for step in _rows(home, PLANS, "plan_id", plan_ids, shards):
            self._plans[step.plan_id].append(step)
        self._attempts: dict[str, list[AttemptRow]] = defaultdict(list)
        for attempt in _rows(home, ATTEMPTS, "trajectory_id", trajectory_ids, shards):
            self._attempts[attempt.trajectory_id].append(attempt)
        scores: list[ScoreRow] = _rows(home, SCORES, "trajectory_id", trajectory_ids, shards)
        self._overall = {(s.trajectory_id, s.step_number, s.iteration): s.overall for s in scores}

    def view(self, trajectory_id: str) -> TrajectoryView:
        trajectory = self._trajectories.get(trajectory_id)
        if trajectory is None:
            raise FoundryError(f"no trajectory '{trajectory_id}' in {self._home.root}")
        prompt = self._prompts[trajectory.prompt_id]
        plan = sorted(self._plans[trajectory.plan_id or ""], key=lambda step: step.step_number)
        return TrajectoryView(
            trajectory_id=trajectory_id,
            request=prompt.text,
            category=_readable(prompt.category),
            subcategory=_readable(prompt.subcategory),
            status=trajectory.status,
            reasoning=plan[0].reasoning if plan else "",
            input_images=tuple(map(self._home.images.get, prompt.input_images)),
            steps=step_views(
                self._home.images,
                plan[: trajectory.steps],
                self._attempts[trajectory_id],
                self._overall,
            ),
        )


def _rows(
    home: Home,
    table: Table,
    column: str,
    values: Iterable[str],
    partitions: Sequence[str] | None = None,
) -> list:
    where = pc.field(column).isin(pa.array(values, pa.string()))
    records = home.lake.read(table, partitions, where=where).to_pylist()
    return [table.row.model_validate(record) for record in records]


def _readable(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")
