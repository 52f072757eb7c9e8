"""Bootstrap intervals: they cover, they are reproducible, pairs make them narrower."""

import numpy as np
import pytest

from assets.evaluation.bootstrap import mean_interval, paired_difference


def test_an_interval_lies_around_the_mean_and_is_the_same_again():
    values = [0.0, 1.0] * 30
    first = mean_interval(values, seed=3)
    assert first == mean_interval(values, seed=3) != mean_interval(values, seed=4)
    assert first.mean == 0.5
    # A normal approximation: 1.96 * sqrt(0.25 / 60) is 0.127.
    assert first.low == pytest.approx(0.373, abs=0.03)
    assert first.high == pytest.approx(0.627, abs=0.03)


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    intervals = [
        mean_interval(rng.binomial(1, 0.7, size=120).tolist(), seed, resamples=400)
        for seed in range(300)
    ]
    covered = np.mean([i.low <= 0.7 <= i.high for i in intervals])
    assert 0.90 <= covered <= 0.98


def test_more_confidence_is_a_wider_interval():
    values = list(range(20))
    sure, surer = mean_interval(values, confidence=0.8), mean_interval(values, confidence=0.99)
    assert surer.low < sure.low < sure.high < surer.high


def test_equal_values_leave_nothing_open():
    interval = mean_interval([1.0] * 5)
    assert (interval.low, interval.high, interval.count) == (1.0, 1.0, 5)


def test_pairs_leave_out_how_hard_items_are():
    hardness = {f"item {n}": n / 50 for n in range(50)}
    better = {item: value + 0.1 for item, value in hardness.items()}
    gap = paired_difference(better, hardness)
    assert gap.low == pytest.approx(0.1)
    assert mean_interval(list(better.values())).low < mean_interval(list(hardness.values())).high


def test_only_items_that_both_have_are_compared():
    gap = paired_difference({"a": 1.0, "b": 5.0}, {"a": 0.5, "c": 9.0})
    assert (gap.mean, gap.count) == (0.5, 1)


def test_nothing_to_compare_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])
    with pytest.raises(ValueError, match="no values"):
        paired_difference({"a": 1.0}, {"b": 1.0})
