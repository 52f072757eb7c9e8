"""How sure a mean is: percentile bootstrap intervals (Efron 1979), seeded, of one set or of pairs.

Where every value is the same, the interval is a point: resampling cannot know what it never saw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_ROWS = 256  # resamples drawn at once: bounds memory


@dataclass(frozen=True)
class Interval:
    """A mean over `count` items, and between what it lies with the confidence asked for."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_interval(
    values: Sequence[float], seed: int = 0, resamples: int = 2000, confidence: float = 0.95
) -> Interval:
    """The mean of some values and its interval.

    Raises:
        ValueError: there are no values.
    """
    if not len(values):
        raise ValueError("no values, so there is no mean")
    data = np.asarray(values, dtype=float)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(_resampled_means(data, seed, resamples), [tail, 100 - tail])
    return Interval(float(data.mean()), float(low), float(high), len(data))


def paired_difference(
    ours: Mapping[str, float],
    theirs: Mapping[str, float],
    seed: int = 0,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Interval:
    """How much higher `ours` is than `theirs`, over the items that both have.

    Pairing leaves out what makes items hard for both, so that small differences show.

    Args:
        ours, theirs: item -> value.

    Raises:
        ValueError: they have no item in common.
    """
    common = sorted(ours.keys() & theirs.keys())
    gaps = [ours[item] - theirs[item] for item in common]
    return mean_interval(gaps, seed, resamples, confidence)


def _resampled_means(data: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sizes = [min(_ROWS, resamples - done) for done in range(0, resamples, _ROWS)]
    parts = [data[rng.integers(len(data), size=(rows, len(data)))].mean(axis=1) for rows in sizes]
    return np.concatenate(parts)
