"""Balance of verdicts: counts by hand, properties with hypothesis."""

from hashlib import md5

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.curation.checks import unbalanced_verdicts
from assets.curation.sampling import class_sizes, row_hashes, select_copies, verdict_counts
from assets.curation.settings import BalanceSettings

COUNTS = st.dictionaries(
    st.integers(0, 3), st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=4
)
KINDS = {
    "trajectory_id": pa.string(),
    "step_number": pa.int64(),
    "iteration": pa.int64(),
    "accepted": pa.bool_(),
}


def balanced(counts: dict[int, tuple[int, int]], groups: int = 1, **options):
    """(iteration -> accepted, rejected) resampled, in groups of rows: the report and the rows."""
    rows = [
        (f"t{accepted}-{n}", 1, iteration, accepted)
        for iteration, (yes, no) in counts.items()
        for accepted, number in ((True, yes), (False, no))
        for n in range(number)
    ]
    chosen = BalanceSettings(**options)
    sources = [source(rows[number::groups]) for number in range(groups)]
    decided = class_sizes([row_hashes(each, "source", chosen) for each in sources], chosen)
    for each in sources:
        select_copies(each, "source", "target", decided, chosen)
    columns = "SELECT trajectory_id, step_number, iteration, accepted, copy_number FROM target"
    return verdict_counts(decided), sorted(
        row for each in sources for row in each.execute(columns).fetchall()
    )


def source(rows: list[tuple]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    columns = [*zip(*rows, strict=True)] or [()] * 4
    arrays = [pa.array(values, kind) for values, kind in zip(columns, KINDS.values(), strict=True)]
    connection.register("source", pa.table(arrays, names=[*KINDS]))
    return connection


def by_definition(counts: dict[int, tuple[int, int]], **options) -> list[tuple]:
    """The rows that are selected, as the documentation says, over all rows at once."""
    chosen, selected = BalanceSettings(**options), []
    copies = 3 if chosen.mode == "up" else 1
    for iteration, (yes, no) in counts.items():
        wanted = min(max(yes, no), min(yes, no) * copies)
        for accepted, number in ((True, yes), (False, no)):
            keys = [(f"t{accepted}-{n}", 1, iteration) for n in range(number)]
            keys.sort(
                key=lambda key: md5("/".join(map(str, (chosen.seed, *key))).encode()).digest()
            )
            ranked = [(*key, accepted, copy) for copy in range(copies) for key in keys]
            selected += ranked[:wanted]
    return sorted(selected)


def after(report) -> dict[int, tuple[int, int]]:
    return {row["iteration"]: (row["accepted_after"], row["rejected_after"]) for row in report}


def unbalanced(rows, **options) -> list[int]:
    """Iterations that the asset check finds out of balance."""
    columns = [(row[2], row[3]) for row in rows]
    data = pa.table([*map(list, zip(*columns, strict=True))], names=["iteration", "accepted"])
    broken = unbalanced_verdicts(data, "accepted", **options)
    return [row["iteration"] for row in broken]


def test_counts_by_hand():
    cases = {  # mode, (accepted, rejected) of each iteration: before, after
        "down": ({0: (7, 3), 1: (1, 4)}, {0: (3, 3), 1: (1, 1)}),
        "up": ({0: (7, 3), 1: (1, 9), 2: (5, 0)}, {0: (7, 7), 1: (3, 3), 2: (0, 0)}),
        "none": ({0: (5, 2), 2: (5, 0)}, {0: (5, 2), 2: (5, 0)}),
    }
    for mode, (before, wanted) in cases.items():
        report, rows = balanced(before, mode=mode)
        assert after(report) == wanted
        assert unbalanced(rows, tolerance=0.02) == ([0, 2] if mode == "none" else [])
    _, rows = balanced({0: (7, 4)}, mode="up")
    copies = [row[-1] for row in rows if not row[3]]
    assert sorted(copies) == [0, 0, 0, 0, 1, 1, 1], "every row once before one twice"


def test_one_row_more_of_a_verdict_is_in_balance_and_three_of_few_are_not():
    numbers = [*range(1, 30)]
    rows = [("", 1, n, False) for n in numbers for _ in range(n + 1)]
    rows += [("", 1, n, True) for n in numbers for _ in range(n)]
    assert not unbalanced(rows, tolerance=0.0)
    for some in (numbers[:5], numbers[5:10]):  # a check shows five rows
        more = [("", 1, n, False) for n in some for _ in range(2)]
        assert unbalanced([*rows, *more], tolerance=0.0) == some


def test_the_seed_chooses_the_rows():
    picks = [balanced({0: (40, 5)}, mode="down", seed=seed)[1] for seed in (1, 1, 2)]
    assert picks[0] == picks[1] != picks[2]


@settings(max_examples=40, deadline=None)
@given(COUNTS, st.sampled_from(["up", "down"]), st.integers(1, 3))
def test_always_balanced_and_never_copied_too_often(counts, mode, groups):
    report, rows = balanced(counts, groups, mode=mode)
    assert rows == by_definition(counts, mode=mode)
    assert all(accepted == rejected for accepted, rejected in after(report).values())
    assert len(set(rows)) == len(rows)
    assert all(row[-1] < (3 if mode == "up" else 1) for row in rows)
