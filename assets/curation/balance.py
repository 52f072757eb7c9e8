"""Balances the verdicts of a critic set: which rows are repeated or left out.

Every iteration gets as many True as False (paper, section 3.2); else a critic learns to accept late
attempts of a chain. Row copies are numbered from 0, and copy n + 1 of a row exists only if every
row of its iteration and verdict has copy n. The rows to repeat or leave out are chosen by a hash of
seed and row, so the result depends neither on threads nor on row order. The hashes, 16 bytes a row,
are all that has to be known of all rows at once.
"""

from collections.abc import Iterable
from contextlib import closing

import duckdb
import pyarrow as pa

from ..core.duckdb_session import open_session
from .settings import BalanceSettings

_MEMORY_LIMIT = "1GB"
_MAX_COPIES = 3  # of a row, the original included
_HASH = "unhex(md5(concat_ws('/', {seed}, trajectory_id, step_number, iteration)))"
_HASHES = pa.schema({"iteration": pa.int64(), "accepted": pa.bool_(), "hash": pa.binary()})
# Rows whose hash is at most `cutoff` have one copy more than the others of their class.
_SIZES = """
    WITH classes AS (
        SELECT iteration, accepted, count(*) AS rows, list_sort(list(hash)) AS hashes
        FROM hashes GROUP BY ALL
    ),
    sized AS (
        SELECT classes.*, coalesce(other.rows, 0) AS others, {wanted} AS wanted
        FROM classes LEFT JOIN classes AS other
        ON other.iteration = classes.iteration AND other.accepted <> classes.accepted
    )
    SELECT iteration, accepted, rows, wanted, wanted // rows AS copies,
           coalesce(hashes[nullif(wanted % rows, 0)], ''::BLOB) AS cutoff
    FROM sized ORDER BY iteration, accepted DESC
"""
_BALANCED = """
    least(greatest(classes.rows, others), least(classes.rows, others) * {copies},
          classes.rows * {copies})
"""


def row_hashes(
    connection: duckdb.DuckDBPyConnection, source: str, settings: BalanceSettings
) -> pa.Table:
    """The hashes of the rows of a table, which has the columns of the key and `accepted`."""
    hashed = _HASH.format(seed=settings.seed)
    sql = f"SELECT iteration, accepted, {hashed} AS hash FROM {source}"
    return connection.sql(sql).to_arrow_table().cast(_HASHES)


def class_sizes(parts: Iterable[pa.Table], settings: BalanceSettings) -> pa.Table:
    """How often rows are in a set, by `iteration` and `accepted`, from the hashes of all rows.

    Columns `rows` (before balancing), `wanted` (after it), `copies` (of every row) and `cutoff`.
    """
    copies = _MAX_COPIES if settings.mode == "up" else 1
    wanted = "classes.rows" if settings.mode == "none" else _BALANCED.format(copies=copies)
    with closing(open_session(_MEMORY_LIMIT, threads=pa.cpu_count())) as connection:
        connection.register("hashes", pa.concat_tables([_HASHES.empty_table(), *parts]))
        return connection.sql(_SIZES.format(wanted=wanted)).to_arrow_table()


def select_copies(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    target: str,
    sizes: pa.Table,
    settings: BalanceSettings,
) -> None:
    """Create table `target`: the rows of `source` as often as was decided, by `copy_number`."""
    connection.register("class_sizes", sizes.drop_columns(["rows", "wanted"]))
    hashed = _HASH.format(seed=settings.seed)
    connection.execute(
        f"""
        CREATE TEMP TABLE {target} AS
        SELECT * EXCLUDE (copies, cutoff),
               unnest(range(copies + ({hashed} <= cutoff)::BIGINT)) AS copy_number
        FROM {source} JOIN class_sizes USING (iteration, accepted)
        """
    )


def verdict_counts(sizes: pa.Table) -> list[dict[str, int]]:
    """Verdicts of every `iteration`: columns `{accepted,rejected}_{before,after}`."""
    counts: dict[int, dict[str, int]] = {}
    columns = ("accepted_before", "rejected_before", "accepted_after", "rejected_after")
    for row in sizes.to_pylist():
        empty = {"iteration": row["iteration"], **dict.fromkeys(columns, 0)}
        found = counts.setdefault(row["iteration"], empty)
        verdict = "accepted" if row["accepted"] else "rejected"
        found |= {f"{verdict}_before": row["rows"], f"{verdict}_after": row["wanted"]}
    return [*counts.values()]
