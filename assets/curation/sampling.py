"""Which rows of a set are kept, and how often: verdicts are balanced, and sets reduced to a size.

Balance: every iteration of a critic's set gets as many True as False (paper, section 3.2); else a
critic learns to accept late attempts of a chain. Row copies are numbered from 0, and copy n + 1 of
a row exists only if every row of its iteration and verdict has copy n. The rows to repeat or leave
out are chosen by a hash of seed and row, so the result depends neither on threads nor on row order.
The hashes, 16 bytes a row, are all that has to be known of all rows at once.

Size: a set with a target is reduced to distinct rows, balanced, in the shares that it had. Those of
each iteration (critic) or source (planner), verdict and category are in proportion to those that
there are, by the method of largest remainders; which ones they are is decided by a hash of the
row's id, lowest first, originals before copies. So a bank that grows replaces only the rows that
new ones with lower hashes take the place of.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from heapq import nsmallest
from itertools import cycle
from typing import Any, NamedTuple, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from inference.calls.hashing import stable_hash

from ..core.duckdb_session import open_session
from .settings import BalanceSettings
from .shards import Spool
from .sources import distinct_sql, verdict_sql

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

Key = TypeVar("Key", bound=Hashable)


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


class Candidate(NamedTuple):
    """A row that a set may have.

    Args:
        part: iteration of a critic's row, source of a planner's.
        accepted: the verdict that a critic's row teaches.
        copy: 0, or the number of a copy that balancing made.
    """

    row_id: str
    part: int | str
    accepted: bool | None
    category: str
    copy: int


_Verdicts = dict[bool | None, list[Candidate]]


def reduce_rows(
    rows: pa.RecordBatchReader, size: int, categories: pa.Table, balance: BalanceSettings | None
) -> pa.RecordBatchReader:
    """At most `size` of the rows of a training set, in their order.

    Rows with the same content as an earlier one are left out, and with them what balance then lacks
    of the other verdict. Rows are spooled to disk, since they are read twice.

    Args:
        categories: `prompt_id` and `category` of the prompts.
        balance: the settings that a critic's set was balanced by; None: a planner's set.
    """

    def selected() -> Iterator[pa.RecordBatch]:
        spool = Spool(rows.schema)
        for batch in rows:
            spool.add(batch)
        chosen = choose_rows(_candidates(spool.read(), categories), size, balance)
        names = pa.array(sorted(chosen), pa.string())
        for batch in spool.read():
            yield batch.filter(pc.is_in(batch["row_id"], names))

    return pa.RecordBatchReader.from_batches(rows.schema, selected())


def choose_rows(
    candidates: Iterable[Candidate], size: int, balance: BalanceSettings | None
) -> set[str]:
    """Ids of at most `size` rows; fewer where there are not so many balanced ones."""
    parts: dict[Any, _Verdicts] = {}
    for each in candidates:
        parts.setdefault(each.part, {}).setdefault(each.accepted, []).append(each)
    room = {part: _room(verdicts, balance) for part, verdicts in parts.items()}
    odd_to = cycle((True, False))
    chosen: set[str] = set()
    for part, count in sorted(apportion(size, room).items()):
        for verdict, share in _by_verdict(parts[part], count, balance, odd_to).items():
            chosen.update(_lowest(parts[part][verdict], share))
    return chosen


def apportion(total: int, sizes: Mapping[Key, int]) -> dict[Key, int]:
    """`total` (at most the sum of the sizes) in proportion to the sizes, by largest remainders."""
    everything = sum(sizes.values())
    total = min(total, everything)
    exact = {key: divmod(total * size, everything) for key, size in sizes.items() if size}
    parts = {key: quotient for key, (quotient, _) in exact.items()}
    by_remainder = sorted(exact, key=lambda key: (-exact[key][1], str(key)))
    for key in by_remainder[: total - sum(parts.values())]:
        parts[key] += 1
    return parts


def _room(verdicts: _Verdicts, balance: BalanceSettings | None) -> int:
    """Rows of an iteration or a source that a balanced set can have."""
    sizes = [len(rows) for rows in verdicts.values()]
    if balance is None or balance.mode == "none":
        return sum(sizes)
    return 2 * min(sizes) if len(sizes) == 2 else 0


def _by_verdict(
    verdicts: _Verdicts, count: int, balance: BalanceSettings | None, odd_to: Iterator[bool]
) -> dict[bool | None, int]:
    """Halves where verdicts are balanced; of an odd number, one more of `odd_to`, by turns."""
    sizes = {verdict: len(rows) for verdict, rows in verdicts.items()}
    if balance is None or balance.mode == "none":
        return apportion(count, sizes)
    more = next(odd_to) if count % 2 else None
    return {verdict: count // 2 + (verdict == more) for verdict in sizes}


def _lowest(rows: Sequence[Candidate], count: int) -> Iterator[str]:
    by_category = defaultdict[str, list[Candidate]](list)
    for row in rows:
        by_category[row.category].append(row)
    sizes = {category: len(own) for category, own in by_category.items()}
    for category, share in apportion(count, sizes).items():
        for row in nsmallest(share, by_category[category], key=_order):
            yield row.row_id


def _order(row: Candidate) -> tuple[int, str]:
    return row.copy, stable_hash("target", row.row_id)


def _candidates(rows: pa.RecordBatchReader, categories: pa.Table) -> list[Candidate]:
    """The rows whose content no earlier row has, and their copies by balancing."""
    columns = rows.schema.names
    part, copy = ("iteration", "copy_number") if "iteration" in columns else ("source", "0")
    with closing(open_session(_MEMORY_LIMIT, threads=pa.cpu_count())) as connection:
        connection.register("stored", rows)
        connection.register("categories", categories)
        numbered = "(SELECT *, row_number() OVER () AS position FROM stored)"
        found = connection.execute(
            f"""
            SELECT row_id, {part}, {verdict_sql(columns)}, coalesce(category, ''), {copy}
            FROM ({distinct_sql(numbered, columns, "position")})
            LEFT JOIN categories USING (prompt_id) ORDER BY position
            """
        )
        return [Candidate(*row) for row in found.fetchall()]
