"""Filters steps, truncates their chains of attempts, and splits them into SFT and RL.

The unit is the step: its chain of attempts and their overall scores (paper, section 3.2). Named
rules drop a chain; the others are cut after their first best attempt. Only the attempts up to there
are used, so a step's variance is the population variance of their scores.

What is compared with theta is a unit (`curation.split.unit`). The steps of a prompt share images
and wording, so by default they all go to SFT or all to RL, by the mean variance of the prompt's
remaining steps. With unit `step`, as in the paper, each step goes by its own variance, and
a prompt may have steps in both. Held-out prompts are in neither. A theta chosen by ratio changes as
the bank grows, and units near it change sides.

Chains, rules and variances are measured once, by group of shards; then theta is chosen, and the
rows get their sides.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.curation import STEPS
from schemas.prompts import PROMPTS
from schemas.trajectories import ATTEMPTS, SCORES
from warehouse import Home, Lake

from ..core.duckdb_session import duckdb_session, query_rows
from .settings import FILTER_RULES, CurationSettings, FilterSettings, SplitSettings
from .shards import Columns, ShardedLake, Spool, shard_session

_COLUMNS: Columns = {
    PROMPTS: ("prompt_id", "split"),
    ATTEMPTS: ("trajectory_id", "step_number"),
    SCORES: ("trajectory_id", "prompt_id", "shard", "step_number", "iteration", "overall"),
}

_CHAINS = """
CREATE TEMP VIEW chains AS
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
WITH by_iteration AS (
    SELECT iteration, count(*) AS attempts, avg(overall) AS mean,
           quantile_cont(overall, [0.25, 0.5, 0.75]) AS quartiles
    FROM scores SEMI JOIN curated USING (shard) GROUP BY iteration
)
SELECT iteration, attempts, mean, quartiles[1] AS lower_quartile, quartiles[2] AS median,
       quartiles[3] AS upper_quartile
FROM by_iteration ORDER BY iteration
"""
_ORDER = "ORDER BY trajectory_id, step_number"  # in which variances are summed: sums round
_MEASURED = pa.schema(  # columns of `steps`, and what its split follows from
    [
        *(field for field in STEPS.arrow_schema if field.name != "split"),
        pa.field("unit_variance", pa.float64()),
    ]
)


@dataclass(frozen=True)
class StepsReport:
    """Outcome of filter and split, in steps."""

    dropped: dict[str, int]  # by reason
    splits: dict[str, int]  # the others; `none`: of held-out prompts, or left out
    theta: float | None
    variance: np.ndarray  # of the retained steps of train prompts
    unit: str  # prompt or step
    unit_variance: np.ndarray  # of the units of train prompts, which are compared with theta
    scores: list[dict[str, float]]  # by iteration, see `figures.score_by_iteration`


@dataclass(frozen=True)
class _Measures:
    """What theta and the report follow from, of some shards or of all."""

    dropped: Counter[str]
    retained: int
    steps: pa.Table  # variance, unit_variance of the retained steps of train prompts
    units: pa.Table  # unit_variance, steps of their units

    @classmethod
    def of(cls, rows: pa.Table, units: pa.Table) -> "_Measures":
        reasons = pc.value_counts(rows["drop_reason"].drop_null()).to_pylist()
        dropped = Counter({each["values"]: each["counts"] for each in reasons})
        train = rows.filter(pc.is_valid(rows["unit_variance"]))
        retained = rows.num_rows - dropped.total()
        return cls(dropped, retained, train.select(["variance", "unit_variance"]), units)

    @classmethod
    def sum(cls, parts: Sequence["_Measures"]) -> "_Measures":
        return cls(
            sum((part.dropped for part in parts), Counter()),
            sum(part.retained for part in parts),
            pa.concat_tables(part.steps for part in parts),
            pa.concat_tables(part.units for part in parts),
        )


def build_steps(
    home: Home, settings: CurationSettings, shards: Sequence[str] | None = None
) -> tuple[pa.RecordBatchReader, StepsReport]:
    """The `steps` of all scored attempts (computed while they are read), and a report.

    Args:
        shards: those to use; None: all of the lineage.
    """
    curated = ShardedLake.of(home, settings, shards)
    spool, parts = Spool(_MEASURED), list[_Measures]()
    for rows, measures_of_group in curated.map(_measure, curated.groups() or [[]]):
        for batch in rows.to_batches():
            spool.add(batch)
        parts.append(measures_of_group)
    measures = _Measures.sum(parts)
    theta = _theta(measures.units, settings.split)
    batches = (_with_split(batch, theta) for batch in spool.read())
    reader = pa.RecordBatchReader.from_batches(STEPS.arrow_schema, batches)
    return reader, _report(measures, settings.split, theta, _score_statistics(home, curated.shards))


def theta_of(connection: duckdb.DuckDBPyConnection, settings: SplitSettings) -> float | None:
    """The theta that the table `steps` was split at; None: no step went to SFT."""
    if settings.theta is not None:
        return settings.theta
    unit = ", ".join(settings.unit_columns)
    ((theta,),) = connection.execute(
        f"""
        SELECT round(max(variance), 9) FROM (
            SELECT mean(variance {_ORDER}) AS variance
            FROM steps SEMI JOIN (SELECT {unit} FROM steps WHERE split = 'sft') USING ({unit})
            WHERE kept GROUP BY {unit}
        )
        """
    ).fetchall()
    return theta


def _measure(
    lake: Lake, settings: CurationSettings, shards: list[str]
) -> tuple[pa.Table, _Measures]:
    """Steps with the variances of their units, and what follows from them."""
    connection = shard_session(lake, settings, shards, _COLUMNS)
    connection.execute(_CHAINS)
    connection.execute(_filter_sql(settings.filter))
    connection.execute(_unit_variance_sql(settings.split))
    rows = connection.sql(_rows_sql(settings.split)).to_arrow_table().cast(_MEASURED)
    units = connection.sql("SELECT unit_variance, steps FROM train_units").to_arrow_table()
    return rows, _Measures.of(rows, units)


def _filter_sql(settings: FilterSettings) -> str:
    """Table `filtered`: chains with the first rule that each breaks; all attempts need scores."""
    numbers = settings.model_dump(exclude={"rules"})
    conditions = {name: FILTER_RULES[name].condition.format(**numbers) for name in settings.rules}
    cases = "".join(f" WHEN {condition} THEN '{name}'" for name, condition in conditions.items())
    reason = f"CASE WHEN scored < iterations THEN 'unscored'{cases} END"
    columns = f"{reason} AS drop_reason, drop_reason IS NULL AS kept"
    return f"CREATE TEMP TABLE filtered AS SELECT *, {columns} FROM chains"


def _unit_variance_sql(settings: SplitSettings) -> str:
    """Table `train_units`: variance and steps."""
    unit = ", ".join(settings.unit_columns)
    return f"""
        CREATE TEMP TABLE train_units AS
        SELECT {unit}, round(mean(variance {_ORDER}), 9) AS unit_variance,
               count(*) AS steps
        FROM filtered JOIN prompts USING (prompt_id)
        WHERE kept AND prompts.split = 'train'
        GROUP BY {unit}
    """


def _theta(units: pa.Table, settings: SplitSettings) -> float | None:
    """The theta of the settings, or the unit variance that brings SFT:RL nearest to the ratio."""
    if settings.theta is not None:
        return settings.theta
    if not units.num_rows:
        return None
    variances, inverse = np.unique(units["unit_variance"].to_numpy(), return_inverse=True)
    steps = np.bincount(inverse, units["steps"].to_numpy()).cumsum()
    share = settings.ratio / (1 + settings.ratio)
    return float(variances[np.abs(steps / steps[-1] - share).argmin()])


def _rows_sql(settings: SplitSettings) -> str:
    unit, columns = ", ".join(settings.unit_columns), ", ".join(_MEASURED.names)
    return f"""
        SELECT {columns} FROM (
            SELECT filtered.*, CASE WHEN kept THEN train_units.unit_variance END AS unit_variance
            FROM filtered LEFT JOIN train_units USING ({unit})
        ) ORDER BY shard, trajectory_id, step_number
    """


def _with_split(rows: pa.RecordBatch, theta: float | None) -> pa.RecordBatch:
    """Rows of `steps`; where there is no theta, no step has a variance to compare with it."""
    is_sft = pc.less_equal(rows["unit_variance"], pa.scalar(theta, pa.float64()))
    split = pc.if_else(is_sft, "sft", "rl")
    return (
        rows.append_column("split", split).select(STEPS.arrow_schema.names).cast(STEPS.arrow_schema)
    )


def _score_statistics(home: Home, shards: Sequence[str]) -> list[dict[str, float]]:
    with closing(duckdb_session(home)) as connection:
        connection.register("curated", pa.table({"shard": pa.array(shards, pa.string())}))
        return [*query_rows(connection, _SCORES)]


def _report(
    measures: _Measures,
    settings: SplitSettings,
    theta: float | None,
    scores: list[dict[str, float]],
) -> StepsReport:
    unit_variance = measures.steps["unit_variance"].to_numpy()
    sft = 0 if theta is None else int(np.sum(unit_variance <= theta))
    rl = len(unit_variance) - sft
    splits = {"sft": sft, "rl": rl, "none": measures.retained - sft - rl}
    return StepsReport(
        dropped=dict(sorted(measures.dropped.items())),
        splits={side: count for side, count in splits.items() if count},
        theta=theta,
        variance=measures.steps["variance"].to_numpy(),
        unit=settings.unit,
        unit_variance=measures.units["unit_variance"].to_numpy(),
        scores=scores,
    )
