"""Training sets are reduced to a size: exact, balanced, in their shares, stable as they grow."""

from collections import Counter

import pyarrow as pa
import pytest

from assets.curation.sampling import Candidate, apportion, choose_rows, reduce_rows
from assets.curation.settings import BalanceSettings
from schemas.curation import PLANNER_SFT
from schemas.prompts import PROMPTS

BALANCED = BalanceSettings()
CATEGORIES = ("art", "science", "science", "daily_life")


def candidates(count, verdicts=(True, False)):
    """`count` rows of each verdict and of each of two iterations, the second one half as large."""
    return [
        Candidate(f"{iteration}/{verdict}/{n}", iteration, verdict, CATEGORIES[n % 4], 0)
        for iteration in (0, 1)
        for verdict in verdicts
        for n in range(count // (1 + iteration))
    ]


def chosen(rows, size, balance=BALANCED):
    names = choose_rows(rows, size, balance)
    return [row for row in rows if row.row_id in names]


@pytest.mark.parametrize("size", [1, 2, 37, 100, 299, 300])
def test_a_set_has_exactly_its_size_and_balance(size):
    found = chosen(candidates(100), size)
    assert len(found) == size
    for iteration in (0, 1):
        verdicts = Counter(row.accepted for row in found if row.part == iteration)
        assert abs(verdicts[True] - verdicts[False]) <= 1
    verdicts = Counter(row.accepted for row in found)
    assert abs(verdicts[True] - verdicts[False]) <= 1, "odd numbers cancel out"


def test_categories_and_iterations_have_the_shares_that_they_had():
    found = chosen(candidates(400), 300)
    shares = Counter(row.category for row in found)
    assert shares["science"] == 150
    assert abs(shares["art"] - 75) <= 2, "at most a rounding for each iteration and verdict"
    assert Counter(row.part for row in found) == {0: 200, 1: 100}


def test_growing_replaces_only_rows_that_new_ones_rank_before():
    fewer, more = candidates(200), candidates(220)
    before = {row.row_id for row in chosen(fewer, 60)}
    after = {row.row_id for row in chosen(more, 60)}
    known = {row.row_id for row in fewer}
    assert len(before & after) > 40
    assert len((after - before) & known) <= 8, "rounding of the shares alone moves an older row"


def test_the_order_of_rows_does_not_matter():
    rows = candidates(50)
    assert choose_rows(rows, 60, BALANCED) == choose_rows(rows[::-1], 60, BALANCED)


def test_originals_come_before_copies():
    rows = [Candidate(f"{n}/{copy}", 0, True, "", copy) for n in range(20) for copy in range(3)]
    rows += [Candidate(f"no/{n}", 0, False, "", 0) for n in range(60)]
    found = chosen(rows, 40)
    assert {row.copy for row in found} == {0}


def test_an_iteration_with_one_verdict_is_left_out_unless_nothing_is_balanced():
    one_sided = [Candidate(str(n), 0, True, "", 0) for n in range(20)]
    assert chosen(one_sided, 50) == []
    assert len(chosen(one_sided, 50, BalanceSettings(mode="none"))) == 20


def test_shares_add_up():
    assert apportion(10, {"a": 5, "b": 5, "c": 5}) == {"a": 4, "b": 3, "c": 3}
    assert apportion(5, {"a": 2, "b": 1}) == {"a": 2, "b": 1}
    assert apportion(3, {}) == {}
    assert apportion(9, {"a": 1, "b": 1}) == {"a": 1, "b": 1}


def planner_row(number, text):
    turns = [{"role": "user", "content": text}, {"role": "assistant", "content": "plan"}]
    ids = {"row_id": f"plan-{number}/plan", "prompt_id": f"{number}", "plan_id": f"plan-{number}"}
    shared = {"source": "plan", "trajectory_id": None, "cut": 0, "agent_prompt_version": "p@1"}
    return {**ids, **shared, "messages": turns, "images": []}


def test_rows_with_the_content_of_an_earlier_one_are_left_out():
    rows = [planner_row(n, f"request {n % 30}") for n in range(60)]
    table = pa.Table.from_pylist(rows, schema=PLANNER_SFT.arrow_schema)
    categories = PROMPTS.arrow_schema.empty_table().select(["prompt_id", "category"])
    reduced = reduce_rows(table.to_reader(max_chunksize=7), 100, categories, None).read_all()
    assert reduced["row_id"].to_pylist() == [f"plan-{n}/plan" for n in range(30)]
