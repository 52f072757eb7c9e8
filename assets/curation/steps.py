"""Filter, truncate and split: which steps' chains of attempts are worth learning from, and where.

The unit is the step: its attempts and their overall scores (paper, section 3.2). A chain is
dropped by named rules, cut after its first best attempt, and measured by the population variance
of the scores up to there, because only those attempts are learnt from.

A prompt's steps share pictures and wording, so a prompt as a whole goes to SFT or to RL: by the
mean (or maximum) of its kept steps' variances against theta. Held-out prompts go nowhere. A theta
chosen by ratio moves as the bank grows, and prompts near it change sides; a set theta does not.
"""

import duckdb
import pyarrow as pa

from schemas.curation import STEPS
from warehouse import Home

from ..core.duckdb_session import arrow, duckdb_session
from .reports import Histogram, IterationScores, StepsReport
from .settings import CurationSettings, FilterSettings, SplitSettings

UNSCORED = "unscored"

_CHAINS = """
CREATE TEMP TABLE chains AS
WITH scored AS (
    SELECT trajectory_id, step_number, any_value(prompt_id) AS prompt_id,
           any_value(shard) AS shard, count(*) AS scored,
           list(overall ORDER BY iteration) AS overall,
           list(iteration ORDER BY iteration) AS numbers,
           coalesce(regr_slope(overall, iteration), 0) AS slope
    FROM scores GROUP BY trajectory_id, step_number
),
made AS (
    SELECT trajectory_id, step_number, count(*) AS iterations
    FROM attempts GROUP BY trajectory_id, step_number
),
peaked AS (
    SELECT *, list_position(overall, list_max(overall)) AS peak
    FROM scored JOIN made USING (trajectory_id, step_number)
)
SELECT trajectory_id, prompt_id, shard, step_number, iterations, scored, slope,
       numbers[peak] AS best_iteration, overall[1] AS first_overall, overall[peak] AS best_overall,
       list_max(overall[2:]) AS best_retry, list_min(overall) AS worst_overall,
       round(list_aggregate(overall[:peak], 'var_pop'), 9) AS variance
FROM peaked
"""


def build_steps(home: Home, settings: CurationSettings) -> tuple[pa.Table, StepsReport]:
    """The `steps` table of everything scored so far, and what became of the steps."""
    connection = duckdb_session(home)
    connection.execute(_CHAINS)
    connection.execute(_filtered(settings.filter))
    connection.execute(_prompt_variances(settings.split))
    theta = _theta(connection, settings.split)
    connection.execute(_split(settings.split), {"theta": theta})
    columns = ", ".join(STEPS.columns)
    order = "ORDER BY shard, trajectory_id, step_number"
    table = arrow(connection, f"SELECT {columns} FROM divided {order}")
    return table.cast(STEPS.arrow_schema), _report(connection, theta)


def theta_of(steps: pa.Table, settings: SplitSettings) -> float | None:
    """The theta a `steps` table was split at, for cards; None when nothing went to SFT."""
    if settings.theta is not None:
        return settings.theta
    connection = duckdb.connect()
    connection.register("kept", steps)
    side = f"SELECT {settings.prompt_variance}(variance) AS spread FROM kept WHERE kept"
    side += " AND prompt_id IN (SELECT prompt_id FROM kept WHERE split = 'sft') GROUP BY prompt_id"
    found = connection.execute(f"SELECT round(max(spread), 9) FROM ({side})").fetchall()
    return None if found[0][0] is None else float(found[0][0])


def _filtered(settings: FilterSettings) -> str:
    """The chains with the first rule that each breaks; not being wholly scored is one always."""
    conditions = {
        "negative_trend": f"slope < {settings.min_slope} "
        f"AND worst_overall < {settings.stable_high}",
        "degradation": f"best_retry < first_overall - {settings.max_degradation}",
        "persistent_low_quality": f"best_overall < {settings.low_quality}",
    }
    cases = "".join(f" WHEN {conditions[rule]} THEN '{rule}'" for rule in settings.rules)
    reason = f"CASE WHEN scored < iterations THEN '{UNSCORED}'{cases} END"
    return f"""
        CREATE TEMP TABLE filtered AS
        SELECT *, drop_reason IS NULL AS kept
        FROM (SELECT *, {reason} AS drop_reason FROM chains)
    """


def _prompt_variances(settings: SplitSettings) -> str:
    """Train prompts with the variance that decides their side. Rounded: sums vary with threads."""
    return f"""
        CREATE TEMP TABLE sides AS
        SELECT prompt_id, round({settings.prompt_variance}(variance), 9) AS spread,
               count(*) AS steps
        FROM filtered JOIN prompts USING (prompt_id)
        WHERE kept AND prompts.split = 'train'
        GROUP BY prompt_id
    """


def _theta(connection: duckdb.DuckDBPyConnection, settings: SplitSettings) -> float | None:
    """The set theta, or the prompt variance that brings SFT:RL nearest to the wanted ratio."""
    if settings.theta is not None:
        return settings.theta
    wanted = settings.ratio / (1 + settings.ratio)
    found = connection.execute(
        """
        WITH levels AS (SELECT spread, sum(steps) AS steps FROM sides GROUP BY spread),
             below AS (SELECT spread, sum(steps) OVER (ORDER BY spread) AS steps FROM levels)
        SELECT spread FROM below
        ORDER BY abs(steps / (SELECT sum(steps) FROM sides) - ?), spread LIMIT 1
        """,
        [wanted],
    ).fetchall()
    return float(found[0][0]) if found else None


def _split(settings: SplitSettings) -> str:
    stays = "true" if settings.off_side == "move" else "(variance <= $theta) = (side = 'sft')"
    return f"""
        CREATE TEMP TABLE divided AS
        WITH sided AS (
            SELECT prompt_id, CASE WHEN spread <= $theta THEN 'sft' ELSE 'rl' END AS side FROM sides
        )
        SELECT filtered.*, CASE WHEN kept AND {stays} THEN side END AS split
        FROM filtered LEFT JOIN sided USING (prompt_id)
    """


def _report(connection: duckdb.DuckDBPyConnection, theta: float | None) -> StepsReport:
    def column(sql: str) -> dict[str, int]:
        return dict(connection.execute(sql).fetchall())

    reasons = column(
        "SELECT drop_reason, count(*) FROM divided WHERE NOT kept GROUP BY 1 ORDER BY 1"
    )
    splits = column("SELECT coalesce(split, ''), count(*) FROM divided WHERE kept GROUP BY 1")
    of_train = "FROM divided SEMI JOIN sides USING (prompt_id) WHERE kept"
    variances = arrow(connection, f"SELECT variance {of_train}")["variance"]
    spreads = arrow(connection, "SELECT spread FROM sides")["spread"]
    kept = sum(splits.values())
    return StepsReport(
        steps=kept + sum(reasons.values()),
        kept=kept,
        dropped=reasons,
        theta=theta,
        sft=splits.get("sft", 0),
        rl=splits.get("rl", 0),
        left_out=splits.get("", 0),
        variance=Histogram.of(variances.to_numpy()),
        prompt_variance=Histogram.of(spreads.to_numpy()),
        scores=_scores_by_iteration(connection),
    )


def _scores_by_iteration(connection: duckdb.DuckDBPyConnection) -> list[IterationScores]:
    rows = connection.execute(
        """
        SELECT iteration, count(*), avg(overall), quantile_cont(overall, 0.25),
               quantile_cont(overall, 0.5), quantile_cont(overall, 0.75)
        FROM scores GROUP BY iteration ORDER BY iteration
        """
    ).fetchall()
    return [IterationScores(*row) for row in rows]
