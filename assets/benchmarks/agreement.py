"""How far the verdicts of two judges, or of a judge and people, agree."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ..evaluation.summary import Interval, mean_interval

Case = TypeVar("Case", bound=Hashable)


@dataclass(frozen=True)
class Agreement:
    """Two judges over the cases that both were asked.

    Args:
        share: cases with the same label, 0..1; None if nothing was compared.
        kappa: Cohen's kappa (1960): agreement beyond chance, 1 at most; None where chance alone
            would agree always, as if both give every case one label.
        unscored: the share of the common cases that one of them has no verdict on.
    """

    share: Interval | None
    kappa: Interval | None
    unscored: float


def agreement(
    first: Mapping[Case, str | None],
    second: Mapping[Case, str | None],
    *,
    seed: int = 0,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Agreement:
    """Agreement of two judges, with bootstrap intervals over the cases.

    Args:
        first, second: case -> label; None: the judge's answer could not be read.

    Raises:
        ValueError: they have no case in common.
    """
    common = [case for case in first if case in second]
    if not common:
        raise ValueError("the two judges have no case in common")
    pairs = [
        (a, b)
        for case in common
        if (a := first[case]) is not None and (b := second[case]) is not None
    ]
    unscored = (len(common) - len(pairs)) / len(common)
    if not pairs:
        return Agreement(None, None, unscored)
    share = mean_interval([float(a == b) for a, b in pairs], seed, resamples, confidence)
    return Agreement(share, kappa_interval(pairs, seed, resamples, confidence), unscored)


def kappa_interval(
    pairs: Sequence[tuple[str, str]], seed: int = 0, resamples: int = 2000, confidence: float = 0.95
) -> Interval | None:
    """Cohen's kappa of pairs of labels and its percentile bootstrap interval.

    None where kappa is undefined. Resamples in which it is undefined count in no bound; a resample
    of cases is drawn as counts of the confusion matrix, which has the same distribution.
    """
    counts = _confusion(pairs)
    kappa = float(_kappas(counts[None])[0])
    if np.isnan(kappa):
        return None
    rng, tail = np.random.default_rng(seed), 50 * (1 - confidence)
    drawn = rng.multinomial(len(pairs), counts.ravel() / len(pairs), size=resamples)
    kappas = _kappas(drawn.reshape(resamples, *counts.shape))
    low, high = np.nanpercentile(kappas, [tail, 100 - tail])
    return Interval(kappa, float(low), float(high), len(pairs))


def disagreements(
    first: Mapping[Case, str | None], second: Mapping[Case, str | None]
) -> list[Case]:
    """The cases on which both have a label, and not the same one, in the order of `first`."""
    return [
        case
        for case, label in first.items()
        if None not in (label, second.get(case)) and label != second[case]
    ]


def sampled(cases: Sequence[Case], count: int, seed: int = 0) -> list[Case]:
    """At most `count` of the cases, drawn without replacement by a seed, in their own order."""
    chosen = np.random.default_rng(seed).permutation(len(cases))[:count]
    return [cases[index] for index in sorted(chosen)]


def _confusion(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """How often each pair of labels occurs, (labels, labels)."""
    labels = sorted({label for pair in pairs for label in pair})
    counts = np.zeros((len(labels), len(labels)), dtype=int)
    for a, b in pairs:
        counts[labels.index(a), labels.index(b)] += 1
    return counts


def _kappas(counts: np.ndarray) -> np.ndarray:
    """Kappa of each confusion matrix, (matrices, labels, labels) -> (matrices,); NaN: undefined."""
    total = counts.sum(axis=(1, 2))
    observed = np.trace(counts, axis1=1, axis2=2) / total
    expected = (counts.sum(axis=1) * counts.sum(axis=2)).sum(axis=1) / total**2
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected < 1, (observed - expected) / (1 - expected), np.nan)
