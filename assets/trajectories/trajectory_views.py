"""Trajectories with all that is shown of them: read from the lake, and good examples picked."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from inference.events import plan_from_rows
from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView
from inference.roles import Verdict
from schemas import FoundryError, Table
from schemas.prompts import PROMPTS
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

_SHOWCASE_SHARDS = 30
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
        where status = 'complete'
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
    select trajectory_id from ranked order by rank, category limit $count
"""


def newest_shards(home: Home) -> list[str]:
    """The last shards that have trajectories, as many as are looked through for good examples."""
    return home.lake.partitions(TRAJECTORIES)[-_SHOWCASE_SHARDS:]


def pick_showcase(home: Home, count: int, shards: Sequence[str]) -> list[str]:
    """Ids of at most `count` trajectories of some shards worth showing, of many categories."""
    with closing(duckdb.connect()) as connection:
        for table in (TRAJECTORIES, ATTEMPTS, SCORES, PROMPTS):
            connection.register(table.name, home.lake.read(table, shards))
        rows = connection.execute(_SHOWCASE, {"count": count}).fetchall()
    return [trajectory_id for (trajectory_id,) in rows]


def load_trajectories(
    home: Home, trajectory_ids: Sequence[str], shards: Sequence[str] | None = None
) -> list[TrajectoryView]:
    """The trajectories with these ids, in their order.

    `shards`: where they are; None: anywhere.

    Raises:
        FoundryError: an id is unknown.
        BadImageError: an image is missing or damaged.
    """
    found = _rows_by(home, TRAJECTORIES, "trajectory_id", trajectory_ids, shards)
    for trajectory_id in trajectory_ids:
        if trajectory_id not in found:
            raise FoundryError(f"no trajectory '{trajectory_id}' in {home.root}")
    trajectories: list[TrajectoryRow] = [found[each][0] for each in trajectory_ids]
    shards = sorted({row.shard for row in trajectories})
    prompts = _rows_by(home, PROMPTS, "prompt_id", [t.prompt_id for t in trajectories], shards)
    plan_ids = [row.plan_id for row in trajectories if row.plan_id]
    plans = _rows_by(home, PLANS, "plan_id", plan_ids, shards)
    attempts = _rows_by(home, ATTEMPTS, "trajectory_id", trajectory_ids, shards)
    scores = _rows_by(home, SCORES, "trajectory_id", trajectory_ids, shards)
    views = []
    for row in trajectories:
        key, prompt = row.trajectory_id, prompts[row.prompt_id][0]
        plan = sorted(plans[row.plan_id or ""], key=lambda step: step.step_number)
        views.append(
            TrajectoryView(
                prompt.text,
                tuple(map(home.images.get, prompt.input_images)),
                plan_from_rows(plan),
                step_views(home.images, plan[: row.steps], attempts[key], scores[key]),
                trajectory_id=key,
                category=_readable(prompt.category),
                subcategory=_readable(prompt.subcategory),
            )
        )
    return views


def step_views(
    images: ImageStore,
    plan: Sequence[PlanRow],
    attempts: Iterable[AttemptRow],
    scores: Iterable[ScoreRow] = (),
) -> list[StepView]:
    """The steps of a plan with the attempts of one trajectory; BadImageError for a lost image."""
    overall = {(score.step_number, score.iteration): score.overall for score in scores}
    by_step: dict[int, list[AttemptView]] = defaultdict(list)
    for row in sorted(attempts, key=lambda row: row.iteration):
        attempt = AttemptView(
            images.get(row.image),
            row.prompt,
            row.iteration,
            Verdict(row.accepted, row.refined_prompt, row.reasoning),
            row.chosen,
            overall.get((row.step_number, row.iteration)),
        )
        by_step[row.step_number].append(attempt)
    steps = plan_from_rows(plan).steps
    return [StepView(step, by_step[step.step_number], finished=True) for step in steps]


def _rows_by(
    home: Home, table: Table, column: str, values: Sequence[str], shards: Sequence[str] | None
) -> dict[str, list[Any]]:
    """The rows with these values in a column, by value."""
    where = pc.field(column).isin(pa.array(values, pa.string()))
    rows: dict[str, list[Any]] = defaultdict(list)
    for record in home.lake.read(table, shards, where=where).to_pylist():
        rows[record[column]].append(table.row.model_validate(record))
    return rows


def _readable(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")
