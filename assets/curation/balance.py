"""Balances the verdicts of a critic set: which rows are repeated or left out.

Every iteration gets as many True as False (paper, section 3.2); else a critic learns to accept late
attempts of a chain. Row copies are numbered from 0, and copy n + 1 of a row exists only if every
row of its iteration and verdict has copy n. The rows to repeat or leave out are chosen by a hash of
seed and row, so the result depends neither on threads nor on row order. The hashes, 16 bytes a row,
are all that has to be known of all rows at once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from .settings import BalanceSettings

VerdictClass = tuple[int, bool]  # iteration and verdict
RowHashes = dict[VerdictClass, np.ndarray]
_HASH = "md5(concat_ws('/', {seed}, trajectory_id, step_number, iteration))"
_MAX_COPIES = 3  # of a row, the original included
_HASH_TYPE = "S16"  # bytes of a hash, without zeros at its end


@dataclass(frozen=True)
class ClassSize:
    """How often the rows of an iteration and a verdict are in a set.

    Args:
        rows: of the class before balancing.
        wanted: after it.
        cutoff: rows whose hash (32 hex digits) is at most this have one copy more than the others.
    """

    rows: int
    wanted: int
    cutoff: str

    @property
    def copies(self) -> int:
        """Copies of every row."""
        return self.wanted // self.rows


def row_hashes(
    connection: duckdb.DuckDBPyConnection, source: str, settings: BalanceSettings
) -> RowHashes:
    """The hashes of the rows of a table, which has the columns of the key and `accepted`."""
    hashed = f"list(unhex({_HASH.format(seed=settings.seed)}))"
    classes = connection.execute(f"SELECT iteration, accepted, {hashed} FROM {source} GROUP BY ALL")
    return {
        (iteration, accepted): np.array(hashes, _HASH_TYPE)
        for iteration, accepted, hashes in classes.fetchall()
    }


def class_sizes(
    parts: Iterable[RowHashes], settings: BalanceSettings
) -> dict[VerdictClass, ClassSize]:
    """What the hashes of all rows give: see the settings."""
    collected: dict[VerdictClass, list[np.ndarray]] = {}
    for part in parts:
        for verdict_class, hashes in part.items():
            collected.setdefault(verdict_class, []).append(hashes)
    counts = {each: sum(map(len, hashes)) for each, hashes in collected.items()}
    return {
        each: _class_size(hashes, counts[each], counts.get((each[0], not each[1]), 0), settings)
        for each, hashes in collected.items()
    }


def select_copies(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    target: str,
    decided: Mapping[VerdictClass, ClassSize],
    settings: BalanceSettings,
) -> None:
    """Create table `target`: the rows of `source` as often as was decided, by `copy_number`."""
    columns = {
        "iteration": [iteration for iteration, _ in decided],
        "accepted": [accepted for _, accepted in decided],
        "copies": [each.copies for each in decided.values()],
        "cutoff": [each.cutoff for each in decided.values()],
    }
    kinds = (pa.int64(), pa.bool_(), pa.int64(), pa.string())
    schema = pa.schema(zip(columns, kinds, strict=True))
    connection.register("class_sizes", pa.table(columns, schema=schema))
    hashed = _HASH.format(seed=settings.seed)
    connection.execute(
        f"""
        CREATE TEMP TABLE {target} AS
        SELECT * EXCLUDE (copies, cutoff),
               unnest(range(copies + ({hashed} <= cutoff)::BIGINT)) AS copy_number
        FROM {source} JOIN class_sizes USING (iteration, accepted)
        """
    )


def verdict_counts(decided: Mapping[VerdictClass, ClassSize]) -> list[dict[str, int]]:
    """Verdicts of every `iteration`: columns `{accepted,rejected}_{before,after}`."""
    nothing = ClassSize(0, 0, "")
    rows = []
    for iteration in sorted({iteration for iteration, _ in decided}):
        yes, no = (decided.get((iteration, verdict), nothing) for verdict in (True, False))
        before = {"accepted_before": yes.rows, "rejected_before": no.rows}
        after = {"accepted_after": yes.wanted, "rejected_after": no.wanted}
        rows.append({"iteration": iteration, **before, **after})
    return rows


def _class_size(
    hashes: list[np.ndarray], rows: int, others: int, settings: BalanceSettings
) -> ClassSize:
    wanted = _wanted(rows, others, settings)
    if not (more := wanted % rows):
        return ClassSize(rows, wanted, "")
    return ClassSize(rows, wanted, _lowest(hashes, more))


def _wanted(rows: int, others: int, settings: BalanceSettings) -> int:
    """Rows after balancing, of a class of so many, where the other verdict has `others`."""
    if settings.mode == "none":
        return rows
    copies = _MAX_COPIES if settings.mode == "up" else 1
    return min(max(rows, others), min(rows, others) * copies, rows * copies)


def _lowest(hashes: list[np.ndarray], count: int) -> str:
    """The greatest of the `count` lowest hashes."""
    in_order = np.concatenate(hashes)
    in_order.sort()
    return bytes(in_order[count - 1]).ljust(16, b"\0").hex()
