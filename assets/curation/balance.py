"""Resamples verdicts so that every iteration has as many True as False (paper, section 3.2).

Without it a critic learns to accept late attempts of a chain. The rows to repeat or leave out are
chosen by a hash of seed and row, so the result depends neither on threads nor on row order.
"""

import duckdb

from .settings import BalanceSettings

KEY = "trajectory_id, step_number, iteration"


def balance(
    connection: duckdb.DuckDBPyConnection, source: str, target: str, settings: BalanceSettings
) -> list[dict[str, int]]:
    """Resample table `source` (key columns, `accepted`, `shard`) into `target` with `copy_number`.

    Row copies are numbered from 0, and copy n + 1 of a row exists only if every row of its
    iteration and verdict has copy n.

    Returns:
        Verdicts per `iteration`: `accepted_before`, `rejected_before`, `accepted_after`,
        `rejected_after`.
    """
    copies = settings.max_copies if settings.mode == "up" else 1
    wanted = f"least(greatest(yes, no), least(yes, no) * {copies})"
    if settings.one_sided == "keep":
        wanted = f"CASE WHEN least(yes, no) = 0 THEN greatest(yes, no) ELSE {wanted} END"
    connection.execute(
        f"""
        CREATE TEMP TABLE {target} AS
        WITH verdicts AS (
            SELECT iteration, count(*) FILTER (accepted) AS yes,
                   count(*) FILTER (NOT accepted) AS no
            FROM {source} GROUP BY iteration
        ),
        ranked AS (
            SELECT {source}.*, copy_number, row_number() OVER (
                PARTITION BY iteration, accepted
                ORDER BY copy_number, md5(concat_ws('/', {settings.seed}, {KEY})), {KEY}
            ) AS rank
            FROM {source}, (SELECT unnest(range({copies})) AS copy_number)
        )
        SELECT ranked.* EXCLUDE (rank) FROM ranked JOIN verdicts USING (iteration)
        WHERE {"true" if settings.mode == "none" else f"rank <= {wanted}"}
        """
    )
    counts = connection.sql(
        f"""
        SELECT iteration, count(*) FILTER (NOT after AND accepted) AS accepted_before,
               count(*) FILTER (NOT after AND NOT accepted) AS rejected_before,
               count(*) FILTER (after AND accepted) AS accepted_after,
               count(*) FILTER (after AND NOT accepted) AS rejected_after
        FROM (SELECT iteration, accepted, false AS after FROM {source}
              UNION ALL SELECT iteration, accepted, true FROM {target})
        GROUP BY iteration ORDER BY iteration
        """
    )
    return counts.to_arrow_table().to_pylist()
