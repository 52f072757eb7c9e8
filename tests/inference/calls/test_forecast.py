"""Intervals of forecasts cover what comes about as often as they say."""

import heapq

import numpy as np
import pytest

from inference.calls.forecast import (
    LEVEL,
    MIN_PROMPTS,
    ItemUsage,
    WorkForecast,
    WorkItem,
    predict_sum,
)

SEED = 7
# Amounts of items by size: their mean and variance are proportional to it.
AMOUNTS = {
    "gamma": lambda random, sizes: random.gamma(2.0 * sizes),
    "lognormal": lambda random, sizes: (
        random.lognormal(0, 0.8, (len(sizes), 8)) * (np.arange(8) < sizes[:, None])
    ).sum(1),
}


def draw(random, kind, count):
    sizes = random.integers(3, 9, count)
    return sizes, AMOUNTS[kind](random, sizes)


@pytest.mark.parametrize("kind", AMOUNTS)
@pytest.mark.parametrize(("done", "to_come"), [(5, 20), (20, 80), (60, 1000)])
def test_sums_lie_in_their_interval(kind, done, to_come):
    random, covered, tries = np.random.default_rng(SEED), 0, 600
    for _ in range(tries):
        sizes, amounts = draw(random, kind, done + to_come)
        finished = [WorkItem(*pair) for pair in zip(sizes[:done], amounts[:done], strict=True)]
        found = predict_sum(finished, sizes[done:].sum(), at_least=5)
        covered += found.low <= amounts[done:].sum() <= found.high
    # Four standard errors of the share, and skewness with few items.
    assert covered / tries == pytest.approx(LEVEL, abs=0.05)


class Work:
    """Items that `slots` workers take one after the other, largest first, on a clock of its own."""

    def __init__(self, random, kind, count, slots):
        sizes = np.sort(random.integers(3, 9, count))[::-1]
        self.seconds, self.now, self._next, self._slots = (
            AMOUNTS[kind](random, sizes),
            0.0,
            0,
            slots,
        )
        self.usd = self.seconds * 0.01
        self.forecast = WorkForecast(list(map(float, sizes)), slots, clock=lambda: self.now)
        self._running = []

    def finish(self, count):
        """Work until so many more are finished."""
        for _ in range(count):
            while self._next < len(self.seconds) and len(self._running) < self._slots:
                heapq.heappush(self._running, (self.now + self.seconds[self._next], self._next))
                self.forecast.begin(self._next)
                self._next += 1
            self.now, item = heapq.heappop(self._running)
            self.forecast.end(item, ItemUsage(usd=self.usd[item]))


@pytest.mark.parametrize(("slots", "done"), [(1, 25), (16, 60)])
def test_ends_and_costs_lie_in_their_intervals(slots, done):
    """Though items that are finished early are quick ones."""
    random, ends, costs, tries, count = np.random.default_rng(SEED), 0, 0, 150, 120
    for _ in range(tries):
        work = Work(random, "gamma", count, slots)
        work.finish(done)
        found, then, paid = work.forecast.forecast(), work.now, {*range(count)}
        running = {item for _, item in work._running}
        to_come = running | {*range(work._next, count)}
        work.finish(count - done)
        ends += found.seconds.low <= work.now - then <= found.seconds.high
        costs += found.usd.low <= sum(work.usd[item] for item in to_come & paid) <= found.usd.high
    assert ends / tries == pytest.approx(LEVEL, abs=0.08)
    assert costs / tries == pytest.approx(LEVEL, abs=0.08)


def test_nothing_is_said_before_enough_is_finished():
    work = Work(np.random.default_rng(SEED), "gamma", 100, slots=8)
    work.finish(MIN_PROMPTS + 8 - 1)
    assert work.forecast.forecast().text == ""
    work.now += 60  # it is made again after two seconds
    work.finish(1)
    assert work.forecast.forecast().text.startswith("ends ")


def test_items_that_were_finished_before_and_those_without_a_price():
    now = [0.0]
    forecast = WorkForecast([1.0] * 100, 1, clock=lambda: now[0])
    for item in range(60):
        forecast.begin(item)
        now[0] += 0.001 if item < 20 else 10.0
        forecast.end(item, ItemUsage(usd=None, replayed=item < 20))
    found = forecast.forecast()
    assert found.usd is None and "USD" not in found.text
    assert found.seconds.expected == pytest.approx(40 * 10, rel=0.01)
