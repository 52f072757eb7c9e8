"""What people think of attempts, as views of a DuckDB session over the tables of the lake.

Only reviews count that are their reviewer's newest, and whose images are still those of the
attempts. Reviewers who disagree are a vote; a tie is no opinion.
"""

from typing import NamedTuple

import duckdb

from inference.review_log import CURRENT_REVIEWS, USER_REQUESTS
from schemas.trajectories import ATTEMPT_KEY
from warehouse import Home

from ..core.duckdb_session import duckdb_session

_ATTEMPT = ", ".join(ATTEMPT_KEY)
_VIEWS = f"""
    CREATE TEMP VIEW valid_reviews AS
    SELECT r.* FROM ({CURRENT_REVIEWS}) r
    JOIN attempts a USING ({_ATTEMPT})
    LEFT JOIN attempts o ON o.trajectory_id = r.trajectory_id AND o.step_number = r.step_number
        AND o.iteration = r.other_iteration
    WHERE r.image = a.image AND r.other_image IS NOT DISTINCT FROM o.image;

    CREATE TEMP VIEW person_verdicts AS
    SELECT {_ATTEMPT}, any_value(shard) AS shard, count(*) AS reviewers,
           CASE WHEN 2 * count(*) FILTER (accepted) <> count(*)
                THEN 2 * count(*) FILTER (accepted) > count(*) END AS person_accepted
    FROM valid_reviews WHERE kind = 'verdict' GROUP BY {_ATTEMPT};

    CREATE TEMP VIEW person_prompts AS
    SELECT {_ATTEMPT}, arg_max(prompt, reviewed_at) AS person_prompt
    FROM valid_reviews WHERE kind = 'prompt' GROUP BY {_ATTEMPT};

    CREATE TEMP VIEW person_preferences AS
    SELECT {_ATTEMPT}, other_iteration, count(*) AS reviewers,
           CASE WHEN 2 * count(*) FILTER (better_iteration = iteration) <> count(*)
                THEN 2 * count(*) FILTER (better_iteration = iteration) > count(*)
           END AS earlier_is_better
    FROM valid_reviews WHERE kind = 'preference' GROUP BY {_ATTEMPT}, other_iteration;
"""
_SHARES = f"""
    SELECT shard, count(*) AS attempts, count(reviewers) AS reviewed
    FROM attempts LEFT JOIN person_verdicts USING (trajectory_id, step_number, iteration, shard)
    WHERE NOT starts_with(shard, '{USER_REQUESTS}')
    GROUP BY shard ORDER BY shard
"""


def add_opinions(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the views `person_verdicts`, `person_prompts` and `person_preferences`.

    `person_verdicts`: by attempt `person_accepted` (null: a tie) and the number of `reviewers`;
    `person_prompts`: `person_prompt`, the newest; `person_preferences`: by pair of attempts
    whether `earlier_is_better` (null: a tie).
    """
    connection.execute(_VIEWS)


class ReviewShare(NamedTuple):
    """How much of a shard is reviewed: a number of attempts, and of those with a verdict."""

    shard: str
    attempts: int
    reviewed: int

    def is_held_back(self, share: float) -> bool:
        """Whether less than this share is reviewed."""
        return self.reviewed < share * self.attempts


def shard_shares(home: Home) -> list[ReviewShare]:
    """How much of every shard that can be reviewed is."""
    with duckdb_session(home) as connection:
        add_opinions(connection)
        return [ReviewShare(*row) for row in connection.sql(_SHARES).fetchall()]
