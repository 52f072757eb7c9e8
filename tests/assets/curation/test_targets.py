"""What the bank takes to meet targets: shards and USD as intervals, and when they will not do."""

from dataclasses import replace

import pytest

from assets.curation.targets import Growth, SetProgress
from inference.engine.forecast import Interval

EVEN = (20, 22, 18, 21, 19)  # rows of five shards


def progress(target, by_shard=EVEN, **elsewhere):
    return SetProgress("critic_sft", target, by_shard, {"art": sum(by_shard)}, elsewhere)


def growth(target, by_shard=EVEN, waiting=0, usd=None, spent=0.0, budget=None):
    found = progress(target, by_shard)
    made = len(by_shard) + waiting
    return Growth((found,), made, waiting, found.shards_to_come, usd, spent, budget)


def test_shards_to_come_enclose_the_mean():
    low, expected, high = progress(1100).shards_to_come
    assert expected == 50
    assert 40 < low < 50 < high < 60


def test_rows_of_imports_and_rounds_are_counted():
    assert progress(200, imports=60, rounds=40).is_met
    assert progress(300, imports=60).shards_to_come.expected == 7


def test_few_shards_give_no_forecast():
    assert progress(300, EVEN[:4]).shards_to_come is None
    few = growth(300, EVEN[:4])
    assert few.batch(most=100) == 1
    assert few.problem(most=100) is None
    assert "has no more" in few.problem(most=4)


def test_a_batch_is_no_larger_than_what_is_surely_needed():
    found = growth(1100)
    assert found.batch(most=1000) == found.to_come.low
    assert found.batch(most=15) == 10
    assert growth(101).batch(most=1000) == 1


def test_a_bank_that_ends_too_soon_is_said_with_what_would_do():
    found = growth(1100)
    assert found.problem(most=5 + int(found.to_come.low)) is None
    said = found.problem(most=30)
    assert "the bank ends after 30 shards, of which 5 are made" in said
    assert f"`sizes` with {5 + found.to_come.high:.0f} shards" in said
    reachable = int(said.partition("targets of critic_sft ")[2].partition(";")[0])
    assert 550 < reachable < 600


def test_a_set_that_no_shard_has_rows_of_is_never_met():
    said = growth(10, (0, 0, 0, 0, 0)).problem(most=400)
    assert "at least 1,000,000 more" in said and "targets of critic_sft 0" in said


def test_a_budget_that_is_too_small_stops_before_it_is_spent():
    found = growth(1100, usd=Interval(4.0, 5.0, 6.0), spent=0.5, budget=5.6)
    assert found.problem(most=1000) is None
    said = replace(found, budget=5.4).problem(most=1000)
    assert "of the budget of 5.40 USD 4.90 are not spent" in said
    assert "4.00 to 6.00 USD more: a budget of 6.50 USD would do" in said


@pytest.mark.parametrize(("by_shard", "target"), [((), 10), (EVEN, 140)])
def test_no_shards_are_made_while_enough_wait_for_reviews(by_shard, target):
    assert "wait for reviews" in growth(target, by_shard, waiting=6).problem(most=100)
