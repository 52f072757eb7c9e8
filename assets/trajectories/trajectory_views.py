"""Finished stories as people look at them: read from the lake, and the good ones picked."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

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
from warehouse import EncodedImage, Home, ImageStore
from warehouse.storage import safe_name

# trajectory, step, iteration
AttemptKey = tuple[str, int, int]


@dataclass(frozen=True)
class AttemptView:
    """A picture that was drawn for a step, and what the critic made of it."""

    picture: EncodedImage
    prompt: str
    accepted: bool
    chosen: bool
    reasoning: str
    refined_prompt: str
    overall: float | None

    @property
    def rejected(self) -> bool:
        return not self.accepted and not self.chosen


@dataclass(frozen=True)
class StepView:
    """A plan step; one that draws nothing has no attempts."""

    number: int
    name: str
    caption: str
    attempts: tuple[AttemptView, ...]

    @property
    def chosen(self) -> AttemptView | None:
        return next((attempt for attempt in self.attempts if attempt.chosen), None)

    @property
    def rejected(self) -> tuple[AttemptView, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.rejected)


@dataclass(frozen=True)
class TrajectoryView:
    """A trajectory with everything that is worth showing of it."""

    trajectory_id: str
    request: str
    category: str
    subcategory: str
    status: str
    reasoning: str
    given: tuple[EncodedImage, ...]
    steps: tuple[StepView, ...]

    @property
    def rejections(self) -> int:
        return sum(len(step.rejected) for step in self.steps)


# Complete stories of three to seven steps, some of whose pictures were rejected, best scored first;
# the first of every category before the second of any.
_SHOWCASE = """
    with told as (
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
    placed as (
        select trajectory_id, category, row_number() over (
            partition by category
            order by not steps between 3 and 7, not rejected between 1 and 3,
                     len(input_images) > 0, worst desc nulls last, trajectory_id
        ) as place
        from told join prompts using (prompt_id)
    )
    select trajectory_id from placed order by place, category limit {n}
"""


def pick_showcase(home: Home, n: int, shard: str | None = None) -> list[str]:
    """Ids of at most `n` stories (of one shard) worth showing, of many categories."""
    from warehouse import query

    condition = f"trajectories.shard = '{safe_name(shard, 'shard')}'" if shard else "true"
    return query(_SHOWCASE.format(n=int(n), shard=condition), home)["trajectory_id"].tolist()


def load_stories(home: Home, trajectory_ids: Sequence[str]) -> list[TrajectoryView]:
    """The stories of some trajectories, in the order asked for.

    Raises:
        FoundryError: there is no such trajectory.
        BadImageError: a picture is missing or damaged.
    """
    reader = _Reader(home, trajectory_ids)
    return [reader.story(trajectory_id) for trajectory_id in trajectory_ids]


def steps_of(
    images: ImageStore,
    plan: Sequence[PlanRow],
    attempts: Iterable[AttemptRow],
    overall: Mapping[AttemptKey, float],
) -> tuple[StepView, ...]:
    """The steps of a plan, with the attempts that one trajectory made at them.

    Raises:
        BadImageError: a picture is missing or damaged.
    """
    drawn: dict[int, list[AttemptView]] = defaultdict(list)
    for row in sorted(attempts, key=lambda row: row.iteration):
        grade = overall.get((row.trajectory_id, row.step_number, row.iteration))
        drawn[row.step_number].append(_attempt(images, row, grade))
    return tuple(
        StepView(
            number=step.step_number,
            name=step.step_name,
            caption=step.auxiliary_text or step.instruction or "",
            attempts=tuple(drawn[step.step_number]),
        )
        for step in plan
    )


def _attempt(images: ImageStore, row: AttemptRow, overall: float | None) -> AttemptView:
    return AttemptView(
        picture=images.get(row.image),
        prompt=row.prompt,
        accepted=row.accepted,
        chosen=row.chosen,
        reasoning=row.reasoning,
        refined_prompt=row.refined_prompt,
        overall=overall,
    )


class _Reader:
    """The rows of a few trajectories, read once, from their shards only."""

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

    def story(self, trajectory_id: str) -> TrajectoryView:
        trajectory = self._trajectories.get(trajectory_id)
        if trajectory is None:
            raise FoundryError(f"no trajectory '{trajectory_id}' in {self._home.root}")
        prompt = self._prompts[trajectory.prompt_id]
        plan = sorted(self._plans[trajectory.plan_id or ""], key=lambda step: step.step_number)
        return TrajectoryView(
            trajectory_id=trajectory_id,
            request=prompt.text,
            category=_spoken(prompt.category),
            subcategory=_spoken(prompt.subcategory),
            status=trajectory.status,
            reasoning=plan[0].reasoning if plan else "",
            given=tuple(map(self._home.images.get, prompt.input_images)),
            steps=steps_of(
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


def _spoken(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")
