"""Means and agreements with their intervals: every number that is compared with another.

Intervals are percentile bootstrap intervals (Efron 1979), seeded and clustered by request: what is
resampled is a request with all its values, of its plan, its outcome and its judged attempts, under
every training seed, because they are not independent. Where every value is the same, the interval
is a point. What differs from one training to the next is its spread.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeVar

import numpy as np

Case = TypeVar("Case", bound=Hashable)
_CHUNK = 256  # resamples drawn at once: bounds memory
_Z = 1.959963984540054  # of a two-sided 95 % interval


@dataclass(frozen=True)
class Interval:
    """The mean of `count` values, of so many requests, and the bounds of its interval.

    Args:
        requests: None: not clustered.
        spread: standard deviation of the means of the training seeds; None: fewer than two.
    """

    mean: float
    low: float
    high: float
    count: int
    requests: int | None = None
    spread: float | None = None

    def in_percent(self) -> str:
        return f"{100 * self.mean:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"

    def in_words(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"

    def __format__(self, sign: str) -> str:
        return f"{self.mean:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


class Observation(NamedTuple):
    """What a value is of: an item of a request, under a training seed (None: the profile's own)."""

    request: str
    item: str
    training_seed: int | None = None


Values = Mapping[Observation, float]


def mean_interval(
    values: Sequence[float],
    seed: int = 0,
    resamples: int = 2000,
    confidence: float = 0.95,
    requests: Sequence[object] | None = None,
) -> Interval:
    """The mean of some values and its interval; ValueError if there are none.

    Args:
        requests: the request of each value, whose values are resampled together; None: each value
            is a request's only one.
    """
    if not len(values):
        raise ValueError("no values, so there is no mean")
    data = np.asarray(values, dtype=float)
    sums, counts = _cluster(data, range(len(data)) if requests is None else requests)
    low, high = _bounds(_resampled_means(sums, counts, seed, resamples), confidence)
    return Interval(float(data.mean()), low, high, len(data), len(sums))


def clustered_interval(values: Values, **bootstrap: Any) -> Interval:
    """The mean of values, its interval by request, and its spread; see `mean_interval`."""
    in_order = sorted(values, key=str)
    requests = [each.request for each in in_order]
    found = mean_interval([values[each] for each in in_order], requests=requests, **bootstrap)
    by_seed: defaultdict[int | None, list[float]] = defaultdict(list)
    for observation, value in values.items():
        by_seed[observation.training_seed].append(value)
    spread = stdev(map(fmean, by_seed.values())) if len(by_seed) > 1 else None
    return replace(found, spread=spread)


def paired_difference(ours: Values, theirs: Values, **bootstrap: Any) -> Interval | None:
    """How much higher `ours` is than `theirs`; None: they have no item of a training in common.

    Pairing removes the variance between items, so that small differences show. `bootstrap`: see
    `mean_interval`.
    """
    common = {each: ours[each] - theirs[each] for each in ours.keys() & theirs.keys()}
    return clustered_interval(common, **bootstrap) if common else None


def wilson_interval(successes: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927); `count` is at least 1."""
    share, z2 = successes / count, _Z * _Z
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = _Z * sqrt(share * (1 - share) / count + z2 / (4 * count * count)) / (1 + z2 / count)
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))  # of rounding


@dataclass(frozen=True)
class Agreement:
    """Two judges over the cases that both were asked.

    Args:
        cases: how many these are.
        unscored: their share that one of them has no verdict on.
        share: cases with the same label, 0..1; None if nothing was compared.
        kappa: Cohen's kappa (1960): agreement beyond chance, 1 at most; None where chance alone
            would agree always, as if both give every case one label.
        differing: the cases with different labels, in the order of the first judge.
    """

    cases: int
    unscored: float
    share: Interval | None = None
    kappa: Interval | None = None
    differing: list[Any] = field(default_factory=list)


def agreement(
    first: Mapping[Case, str | None], second: Mapping[Case, str | None], **bootstrap: Any
) -> Agreement | None:
    """Agreement of two judges, with bootstrap intervals over the cases (see `mean_interval`).

    None: they have no case in common.

    Args:
        first, second: case -> label; None: the judge's answer could not be read.
    """
    common = {case: (label, second[case]) for case, label in first.items() if case in second}
    if not common:
        return None
    pairs = [(a, b) for a, b in common.values() if a is not None and b is not None]
    unscored = (len(common) - len(pairs)) / len(common)
    if not pairs:
        return Agreement(len(common), unscored)
    share = mean_interval([float(a == b) for a, b in pairs], **bootstrap)
    differing = [case for case, (a, b) in common.items() if None not in (a, b) and a != b]
    return Agreement(len(common), unscored, share, kappa_interval(pairs, **bootstrap), differing)


def kappa_interval(
    pairs: Sequence[tuple[str, str]], seed: int = 0, resamples: int = 2000, confidence: float = 0.95
) -> Interval | None:
    """Cohen's kappa of pairs of labels and its percentile bootstrap interval.

    None where kappa is undefined. Resamples in which it is undefined count in no bound; a resample
    of cases is drawn as counts of the confusion matrix, which has the same distribution.
    """
    labels = sorted({label for pair in pairs for label in pair})
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    for a, b in pairs:
        counts[labels.index(a), labels.index(b)] += 1
    kappa = float(_kappas(counts[None])[0])
    if np.isnan(kappa):
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(pairs), counts.ravel() / len(pairs), size=resamples)
    low, high = _bounds(_kappas(drawn.reshape(resamples, *counts.shape)), confidence)
    return Interval(kappa, low, high, len(pairs))


def sampled(cases: Sequence[Any], count: int | None, seed: int = 0) -> list[Any]:
    """At most `count` of the cases (None: all), drawn by a seed, in their own order."""
    chosen = np.random.default_rng(seed).permutation(len(cases))[:count]
    return [cases[index] for index in sorted(chosen)]


def _bounds(resampled: np.ndarray, confidence: float) -> tuple[float, float]:
    tail = 50 * (1 - confidence)
    low, high = np.nanpercentile(resampled, [tail, 100 - tail])
    return float(low), float(high)


def _cluster(data: np.ndarray, requests: Sequence[object]) -> tuple[np.ndarray, np.ndarray]:
    """Sum and number of the values of every request, in the order in which requests appear."""
    numbers: dict[object, int] = {}
    cluster = np.array([numbers.setdefault(request, len(numbers)) for request in requests])
    return np.bincount(cluster, data), np.bincount(cluster)


def _resampled_means(sums: np.ndarray, counts: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """Means of all values of as many requests, drawn with replacement."""
    rng = np.random.default_rng(seed)
    sizes = [min(_CHUNK, resamples - done) for done in range(0, resamples, _CHUNK)]
    drawn = (rng.integers(len(sums), size=(rows, len(sums))) for rows in sizes)
    parts = [sums[index].sum(axis=1) / counts[index].sum(axis=1) for index in drawn]
    return np.concatenate(parts)


def _kappas(counts: np.ndarray) -> np.ndarray:
    """Kappa of each confusion matrix, (matrices, labels, labels) -> (matrices,); NaN: undefined."""
    total = counts.sum(axis=(1, 2))
    observed = np.trace(counts, axis1=1, axis2=2) / total
    expected = (counts.sum(axis=1) * counts.sum(axis=2)).sum(axis=1) / total**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected < 1, (observed - expected) / (1 - expected), np.nan)
