"""Forecasts of work under way: when it ends and what it costs, each as an interval.

Items (prompts, or shards) have a known size (steps, prompts) and, once finished, a measured amount
(USD, seconds). Amounts are taken to be independent, with mean and variance proportional to size:
then the ratio of the sums is the best estimate of the mean per size, and what it predicts of a sum
has a standard error with two parts, that of the estimate and that of the items to come. Few items
make Student's t of it. The sum of many items is nearly normal however skewed they are, which is why
there is no forecast before `MIN_PROMPTS` (or `MIN_SHARDS`, each a sum itself) are finished. A
bootstrap of so few would be too narrow: it never draws what was not seen.

An interval covers what comes with a probability of `LEVEL`, as long as it comes from where the
finished items came from: a provider that slows down, or a change of settings, is not foreseen.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import NormalDist
from typing import NamedTuple

LEVEL = 0.9
MIN_PROMPTS = 20
MIN_SHARDS = 5
_SIMULATIONS = 400
_MOST_SIMULATED = 1000  # items; of more, the end is a negligible part
_INTERVAL_SECONDS = 2.0


class WorkItem(NamedTuple):
    """An item: its size, and what it took (of one under way: until now)."""

    size: float
    amount: float


@dataclass
class ItemUsage:
    """What this process did for an item."""

    usd: float | None = 0.0  # None: a call has no price
    replayed: bool = False  # (partly) finished before: it says nothing of other items

    def add(self, cost_usd: float | None, error: str | None) -> None:
        """A call; one that failed needs no price."""
        unpriced = self.usd is None or (cost_usd is None and error is None)
        self.usd = None if unpriced else (self.usd or 0.0) + (cost_usd or 0.0)


class Bounds(NamedTuple):
    """Bounds within which something lies with a probability of `LEVEL`, and its mean."""

    low: float
    expected: float
    high: float

    def __mul__(self, factor: object) -> "Bounds":
        if not isinstance(factor, int | float):
            return NotImplemented
        return Bounds(*(value * factor for value in self))


@dataclass(frozen=True)
class Forecast:
    """What is to come; None: not enough is known."""

    seconds: Bounds | None = None
    usd: Bounds | None = None

    @property
    def text(self) -> str:
        """Such as `ends 14:05 to 14:20, 4.10 to 4.60 USD more`; empty where nothing is known."""
        return ", ".join(filter(None, (self._end(), self.usd and f"{usd_range(self.usd)} more")))

    def _end(self) -> str | None:
        if self.seconds is None:
            return None
        now = datetime.now()
        low, high = (now + timedelta(seconds=self.seconds[n]) for n in (0, 2))
        form = "%H:%M" if high.date() == now.date() else "%a %d %b %H:%M"
        if self.seconds.high < 600:
            form = "%H:%M:%S"
        return f"ends {low:{form}} to {high:{form}}"


def usd_range(usd: Bounds) -> str:
    digits = 2 if usd.high >= 1 else 4
    return f"{usd.low:,.{digits}f} to {usd.high:,.{digits}f} USD"


def predict_sum(finished: Sequence[WorkItem], size: float, at_least: int) -> Bounds | None:
    """The sum of the amounts of items to come, whose sizes add up to `size`; None: fewer than
    `at_least` items are finished."""
    if len(finished) < at_least:
        return None
    found = _Estimate.of(finished)
    error = found.spread * math.sqrt(size * (1 + size / found.measured))
    margin = _student_quantile((1 + LEVEL) / 2, found.freedom) * error
    expected = found.ratio * size
    return Bounds(max(expected - margin, 0.0), expected, expected + margin)


def predict_end(
    finished: Sequence[WorkItem], running: Sequence[WorkItem], waiting: Sequence[float], slots: int
) -> Bounds | None:
    """Seconds until all items are finished, of which `slots` are worked on at a time.

    At the end slots are idle while the last items are finished, so the sum of their seconds is not
    enough: what is to come is simulated, with Gamma distributions, of which mean and variance are
    proportional to size, as assumed, and themselves uncertain (Student's t).

    Args:
        waiting: sizes, in the order in which they begin.
    """
    import numpy as np

    if len(waiting) > _MOST_SIMULATED:
        size = sum(waiting) + sum(item.size for item in running)
        total = predict_sum(finished, size, len(finished))
        return total and total * (1 / slots)
    found = _Estimate.of(finished)
    random, rows = np.random.default_rng(0), np.arange(_SIMULATIONS)
    scale = np.sqrt(found.freedom / random.chisquare(found.freedom, _SIMULATIONS))
    error = scale * found.spread / math.sqrt(found.measured)
    means = found.ratio + error * random.standard_normal(_SIMULATIONS)
    means = np.maximum(means, max(found.ratio / 10, 1e-9))
    widths = np.maximum((scale * found.spread) ** 2 / means, 1e-9)

    def draw(size: float) -> "np.ndarray":
        return random.gamma(size * means / widths, widths)

    def rest(size: float, elapsed: float) -> "np.ndarray":
        """Of an item that has taken longer than `elapsed`."""
        drawn = draw(size)
        for _ in range(8):
            drawn = np.where(drawn > elapsed, drawn, draw(size))
        return np.where(drawn > elapsed, drawn - elapsed, drawn)

    busy = np.zeros((_SIMULATIONS, max(slots, len(running), 1)))
    for slot, item in enumerate(running):
        busy[:, slot] = rest(item.size, item.amount)
    for size in waiting:
        busy[rows, busy.argmin(axis=1)] += draw(size)
    ends = busy.max(axis=1)
    low, high = np.quantile(ends, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Bounds(float(low), float(ends.mean()), float(high))


class WorkForecast:
    """Forecasts the rest of some items while they are worked on.

    Args:
        sizes: of all items, in the order in which they begin.
        slots: items worked on at a time.
        at_least: finished items, besides as many as there are slots, before there is a forecast:
            the first ones to finish are the quickest.
    """

    def __init__(
        self,
        sizes: Sequence[float],
        slots: int,
        at_least: int = MIN_PROMPTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sizes, self._slots, self._clock = sizes, max(min(slots, len(sizes)), 1), clock
        self._at_least = at_least + self._slots
        self._begun = 0
        self._running: dict[object, tuple[int, float]] = {}  # item -> its number, when it began
        self._finished = list[_Finished]()
        self._unpriced = False
        self._forecast, self._made_at = Forecast(), -math.inf

    def begin(self, item: object) -> None:
        """The next item begins."""
        self._running[item] = (self._begun, self._clock())
        self._begun += 1

    def end(self, item: object, usage: ItemUsage) -> None:
        """An item is finished."""
        number, began = self._running.pop(item)
        if not usage.replayed:
            self._unpriced |= usage.usd is None
            self._finished.append(_Finished(number, self._clock() - began, usage.usd or 0.0))

    def forecast(self) -> Forecast:
        """Made again every two seconds at most: it takes up to 50 ms."""
        now = self._clock()
        if now - self._made_at >= _INTERVAL_SECONDS:
            self._forecast, self._made_at = self.make(), now
        return self._forecast

    def make(self) -> Forecast:
        """The forecast as of now."""
        now, sizes = self._clock(), self._sizes
        running = [WorkItem(sizes[number], now - began) for number, began in self._running.values()]
        waiting = sizes[self._begun :]
        to_come = sum(waiting) + sum(item.size for item in running)
        if not to_come or len(self._finished) < self._at_least:
            return Forecast()
        finished = self._settled()
        times = [WorkItem(sizes[each.number], each.seconds) for each in finished]
        costs = [WorkItem(sizes[each.number], each.usd) for each in finished]
        return Forecast(
            predict_end(times, running, waiting, self._slots),
            None if self._unpriced else predict_sum(costs, to_come, len(costs)),
        )

    def _settled(self) -> list["_Finished"]:
        """The finished items that began before all those under way: of later ones the quick are
        finished first, and a mean over them is too low. All, where these are too few."""
        oldest = min((number for number, _ in self._running.values()), default=self._begun)
        settled = [each for each in self._finished if each.number < oldest]
        return settled if len(settled) >= self._at_least - self._slots else self._finished


class _Finished(NamedTuple):
    number: int
    seconds: float
    usd: float


class _Estimate(NamedTuple):
    ratio: float  # mean amount per size
    spread: float  # standard deviation of an amount of size 1
    measured: float  # sizes that the ratio is measured on
    freedom: int  # degrees of freedom

    @classmethod
    def of(cls, finished: Sequence[WorkItem]) -> "_Estimate":
        size = sum(item.size for item in finished)
        ratio = sum(item.amount for item in finished) / size
        squares = sum((item.amount - ratio * item.size) ** 2 / item.size for item in finished)
        freedom = max(len(finished) - 1, 1)
        return cls(ratio, math.sqrt(squares / freedom), size, freedom)


def _student_quantile(probability: float, freedom: float) -> float:
    """Of Student's t (Abramowitz and Stegun, 26.7.5): within 1 % from 4 degrees of freedom."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
