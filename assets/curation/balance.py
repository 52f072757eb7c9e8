"""Resamples verdicts so that every iteration has as many True as False (paper, section 3.2).

Without it a critic learns to accept late attempts of a chain. The rows to repeat or leave out are
chosen by a hash of seed and row, so the result depends neither on threads nor on row order.
"""

from dataclasses import dataclass

import duckdb

from .settings import BalanceSettings

KEY = "trajectory_id, step_number, iteration"


@dataclass(frozen=True)
class IterationBalance:
    """Verdicts of one iteration, before and after resampling."""

    iteration: int
    accepted_before: int
    rejected_before: int
    accepted_after: int
    rejected_after: int


def balance(
    connection: duckdb.DuckDBPyConnection, source: str, target: str, settings: BalanceSettings
) -> list[IterationBalance]:
    """Resample table `source` (key columns, `accepted`, `shard`) into `target` with `copy_number`.

    Row copies are numbered from 0, and copy n + 1 of a row exists only if every row of its
    iteration and verdict has copy n.
    """
    copies = settings.max_copies if settings.mode == "up" else 1
    connection.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE targets AS
        WITH verdicts AS (
            SELECT iteration, count(*) FILTER (accepted) AS yes,
                   count(*) FILTER (NOT accepted) AS no
            FROM {source} GROUP BY iteration
        )
        SELECT iteration, {_target_rows(settings, copies)} AS rows FROM verdicts
        """
    )
    connection.execute(
        f"""
        CREATE TEMP TABLE {target} AS
        WITH ranked AS (
            SELECT {source}.*, copy_number, row_number() OVER (
                PARTITION BY iteration, accepted
                ORDER BY copy_number, md5(concat_ws('/', {settings.seed}, {KEY})), {KEY}
            ) AS rank
            FROM {source}, (SELECT unnest(range({copies})) AS copy_number)
        )
        SELECT ranked.* EXCLUDE (rank) FROM ranked JOIN targets USING (iteration)
        WHERE {"copy_number = 0" if settings.mode == "none" else "rank <= targets.rows"}
        """
    )
    return _before_and_after(connection, source, target)


def _target_rows(settings: BalanceSettings, copies: int) -> str:
    """SQL for the rows of each verdict in a balanced iteration."""
    balanced = f"least(greatest(yes, no), least(yes, no) * {copies})"
    if settings.one_sided == "drop":
        return balanced
    return f"CASE WHEN least(yes, no) = 0 THEN greatest(yes, no) ELSE {balanced} END"


def _before_and_after(
    connection: duckdb.DuckDBPyConnection, source: str, target: str
) -> list[IterationBalance]:
    rows = connection.execute(
        f"""
        SELECT iteration, count(*) FILTER (NOT after AND accepted),
               count(*) FILTER (NOT after AND NOT accepted), count(*) FILTER (after AND accepted),
               count(*) FILTER (after AND NOT accepted)
        FROM (SELECT iteration, accepted, false AS after FROM {source}
              UNION ALL SELECT iteration, accepted, true FROM {target})
        GROUP BY iteration ORDER BY iteration
        """
    ).fetchall()
    return [IterationBalance(*row) for row in rows]
