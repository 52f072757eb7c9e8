"""Recorded steps of a lake: chains of attempts, with the critic's verdicts and the scores."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby

from inference.calls.ask import CallSite
from warehouse import Home

from ...core.duckdb_session import duckdb_session, query_rows, shard_in

AttemptKey = tuple[str, int, int]  # trajectory, step, iteration

_STEPS = """
WITH chosen AS (
    SELECT trajectory_id FROM trajectories WHERE {shards}
    ORDER BY md5(trajectory_id) {limit}
)
SELECT trajectory_id, attempts.prompt_id, attempts.shard, step_number, iteration,
       plans.prompt AS goal, CASE WHEN iteration = 0 THEN '' ELSE attempts.prompt END AS rewritten,
       source_image, image, accepted, overall, least(overall, quality) AS grade, t_max
FROM attempts JOIN chosen USING (trajectory_id) JOIN trajectories USING (trajectory_id)
JOIN plans USING (plan_id, step_number)
LEFT JOIN scores USING (trajectory_id, step_number, iteration)
WHERE plans.prompt IS NOT NULL
ORDER BY shard, trajectory_id, step_number, iteration
"""


@dataclass(frozen=True)
class RecordedAttempt:
    """One drawn image, as the lake has it; `overall` and `grade` are None where it has no score.

    Args:
        goal: the plan's prompt of the step.
        rewritten: the prompt that made the image; empty where it was the plan's own.
        source_image, image: sha256; None: drawn from text alone.
        overall: 0 to 10.
        grade: the lower of overall score and quality, by which the image counts as good or bad.
        t_max: attempts that the step was allowed.
    """

    trajectory_id: str
    prompt_id: str
    shard: str
    step_number: int
    iteration: int
    goal: str
    rewritten: str
    source_image: str | None
    image: str
    accepted: bool
    overall: float | None
    grade: float | None
    t_max: int

    @property
    def key(self) -> AttemptKey:
        return self.trajectory_id, self.step_number, self.iteration

    @property
    def site(self) -> CallSite:
        return CallSite(self.prompt_id, self.step_number, self.iteration)


Chain = tuple[RecordedAttempt, ...]
"""The attempts of one step, in order."""


def recorded_chains(
    home: Home, shards: Sequence[str] = (), trajectories: int | None = None
) -> list[Chain]:
    """The recorded steps of some shards (none named: of all).

    Args:
        trajectories: a sample of so many, chosen by hash; None: all.
    """
    sql = _STEPS.format(
        shards=shard_in(list(shards)) if shards else "true",
        limit="" if trajectories is None else f"LIMIT {trajectories}",
    )
    with closing(duckdb_session(home)) as connection:
        attempts = [RecordedAttempt(**row) for row in query_rows(connection, sql)]
    steps = groupby(attempts, key=lambda each: (each.trajectory_id, each.step_number))
    return [tuple(chain) for _, chain in steps]
