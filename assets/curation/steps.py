"""Filters steps, truncates their chains of attempts, and splits them into SFT and RL.

The unit is the step: its chain of attempts and their overall scores (paper, section 3.2). Named
rules drop a chain; the others are cut after their first best attempt. Only the attempts up to there
are used, so a step's variance is the population variance of their scores.

What is compared with theta is a unit (`curation.split.unit`). The steps of a prompt share images
and wording, so by default they all go to SFT or all to RL, by the mean (or maximum) variance of the
prompt's remaining steps. With unit `step`, as in the paper, each step goes by its own variance, and
a prompt may have steps in both. Held-out prompts are in neither. A theta chosen by ratio changes as
the bank grows, and units near it change sides.
"""

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from schemas.curation import STEPS
from warehouse import Home

from .duckdb_session import curation_session
from .settings import CurationSettings, FilterSettings, SplitSettings

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
attempted AS (
    SELECT trajectory_id, step_number, count(*) AS iterations
    FROM attempts GROUP BY trajectory_id, step_number
),
peaked AS (
    SELECT *, list_position(overall, list_max(overall)) AS peak
    FROM scored JOIN attempted USING (trajectory_id, step_number)
)
SELECT trajectory_id, prompt_id, shard, step_number, iterations, scored, slope,
       numbers[peak] AS best_iteration, overall[1] AS first_overall, overall[peak] AS best_overall,
       list_max(overall[2:]) AS best_retry, list_min(overall) AS worst_overall,
       round(list_aggregate(overall[:peak], 'var_pop'), 9) AS variance
FROM peaked
"""
_SCORES = """
SELECT iteration, count(*) AS attempts, avg(overall) AS mean,
       quantile_cont(overall, 0.25) AS lower_quartile, quantile_cont(overall, 0.5) AS median,
       quantile_cont(overall, 0.75) AS upper_quartile
FROM scores GROUP BY iteration ORDER BY iteration
"""


@dataclass(frozen=True)
class StepsReport:
    """Outcome of filter and split, in steps; `scores` are the columns of `_SCORES`."""

    dropped: dict[str, int]  # by reason
    splits: dict[str, int]  # the others; `none`: of held-out prompts, or left out
    theta: float | None
    variance: np.ndarray  # of the retained steps of train prompts
    unit: str  # prompt or step
    unit_variance: np.ndarray  # of the units of train prompts, which are compared with theta
    scores: list[dict[str, float]]


def build_steps(home: Home, settings: CurationSettings) -> tuple[pa.Table, StepsReport]:
    """The `steps` table of all scored steps, and a report."""
    connection = curation_session(home, settings)
    connection.execute(_CHAINS)
    connection.execute(_filter_sql(settings.filter))
    connection.execute(_unit_variance_sql(settings.split))
    theta = _theta(connection, settings.split)
    connection.execute(_split_sql(settings.split), {"theta": theta})
    columns, order = ", ".join(STEPS.columns), "shard, trajectory_id, step_number"
    table = connection.sql(f"SELECT {columns} FROM split_steps ORDER BY {order}").to_arrow_table()
    return table.cast(STEPS.arrow_schema), _report(connection, settings.split, theta)


def theta_of(connection: duckdb.DuckDBPyConnection, settings: SplitSettings) -> float | None:
    """The theta that the table `steps` was split at; None: no step went to SFT."""
    if settings.theta is not None:
        return settings.theta
    unit = ", ".join(settings.unit_columns)
    ((theta,),) = connection.execute(
        f"""
        SELECT round(max(variance), 9) FROM (
            SELECT {settings.prompt_variance}(variance) AS variance
            FROM steps SEMI JOIN (SELECT {unit} FROM steps WHERE split = 'sft') USING ({unit})
            WHERE kept GROUP BY {unit}
        )
        """
    ).fetchall()
    return theta


def _filter_sql(settings: FilterSettings) -> str:
    """Table `filtered`: chains with the first rule that each breaks; all attempts need scores."""
    falling = f"slope < {settings.min_slope} AND worst_overall < {settings.stable_high}"
    conditions = {
        "negative_trend": falling,
        "degradation": f"best_retry < first_overall - {settings.max_degradation}",
        "persistent_low_quality": f"best_overall < {settings.low_quality}",
    }
    cases = "".join(f" WHEN {conditions[rule]} THEN '{rule}'" for rule in settings.rules)
    reason = f"CASE WHEN scored < iterations THEN 'unscored'{cases} END"
    columns = f"{reason} AS drop_reason, drop_reason IS NULL AS kept"
    return f"CREATE TEMP TABLE filtered AS SELECT *, {columns} FROM chains"


def _unit_variance_sql(settings: SplitSettings) -> str:
    """Table `train_units`: variance and steps. Rounded, because sums vary with threads."""
    unit = ", ".join(settings.unit_columns)
    return f"""
        CREATE TEMP TABLE train_units AS
        SELECT {unit}, round({settings.prompt_variance}(variance), 9) AS unit_variance,
               count(*) AS steps
        FROM filtered JOIN prompts USING (prompt_id)
        WHERE kept AND prompts.split = 'train'
        GROUP BY {unit}
    """


def _theta(connection: duckdb.DuckDBPyConnection, settings: SplitSettings) -> float | None:
    """The theta of the settings, or the unit variance that brings SFT:RL nearest to the ratio."""
    if settings.theta is not None:
        return settings.theta
    rows = connection.execute(
        """
        WITH cumulative AS (
            SELECT unit_variance, sum(sum(steps)) OVER (ORDER BY unit_variance) AS steps
            FROM train_units GROUP BY unit_variance
        )
        SELECT unit_variance FROM cumulative
        ORDER BY abs(steps / (SELECT sum(steps) FROM train_units) - ?), unit_variance LIMIT 1
        """,
        [settings.ratio / (1 + settings.ratio)],
    ).fetchall()
    return rows[0][0] if rows else None


def _split_sql(settings: SplitSettings) -> str:
    unit = ", ".join(settings.unit_columns)
    condition = "true" if settings.off_side == "move" else "(variance <= $theta) = (side = 'sft')"
    return f"""
        CREATE TEMP TABLE split_steps AS
        SELECT filtered.*, CASE WHEN kept AND {condition} THEN side END AS split
        FROM filtered LEFT JOIN (
            SELECT {unit}, if(unit_variance <= $theta, 'sft', 'rl') AS side FROM train_units
        ) USING ({unit})
    """


def _report(
    connection: duckdb.DuckDBPyConnection, settings: SplitSettings, theta: float | None
) -> StepsReport:
    dropped = "SELECT drop_reason, count(*) FROM split_steps WHERE NOT kept GROUP BY 1 ORDER BY 1"
    splits = "SELECT coalesce(split, 'none'), count(*) FROM split_steps WHERE kept GROUP BY 1"
    unit = ", ".join(settings.unit_columns)
    train_steps = f"split_steps SEMI JOIN train_units USING ({unit})"
    variance = connection.sql(f"SELECT variance FROM {train_steps} WHERE kept").fetchnumpy()
    unit_variance = connection.sql("SELECT unit_variance FROM train_units").fetchnumpy()
    return StepsReport(
        dropped=dict(connection.execute(dropped).fetchall()),
        splits=dict(connection.execute(splits).fetchall()),
        theta=theta,
        variance=variance["variance"],
        unit=settings.unit,
        unit_variance=unit_variance["unit_variance"],
        scores=connection.sql(_SCORES).to_arrow_table().to_pylist(),
    )
