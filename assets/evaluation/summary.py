"""Evaluation rows as means and differences with bootstrap intervals, and as tables.

Intervals are percentile bootstrap intervals (Efron 1979), seeded and clustered by request: what is
resampled is a request with all its values, of its plan, its outcome and its judged attempts, under
every training seed, because they are not independent. Where every value is the same, the interval
is a point. What differs from one training to the next is shown beside it, as the standard deviation
of the means of the training seeds.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from schemas.training import EvaluationRow

from .settings import EvaluationSettings
from .variants import NEW_CRITIC, NEW_PLANNER, PROMOTED, VARIANTS

METRICS = (
    "plan_valid",
    "plan_correct",
    "verdict_accuracy_true",
    "verdict_accuracy_false",
    "step_reward",
    "refined_gain",
    "final_success",
    "criteria_met",
    "generator_calls",
)
# Pairs of variants that differ in one thing; the first is expected to be better.
PAIRS = (
    ("planner_sft", "generator_only"),
    ("planner_sft", "base"),
    ("planner_sft", "untrained"),
    ("full_sft", "planner_sft"),
    ("full_rl", "full_sft"),
    ("full_rl", "sft_on_rl_labels"),
    ("sft_on_rl_labels", "full_sft"),
    ("full_rl", "rl_no_step"),
    ("full_rl", "rl_no_accuracy"),
    ("full_sft", "one_agent"),
    ("full_sft", "unfiltered"),
    ("t_max_3", "t_max_1"),
    ("t_max_5", "t_max_3"),
    ("full_rl", PROMOTED),
    (NEW_PLANNER, PROMOTED),
    (NEW_CRITIC, PROMOTED),
)
_CHUNK = 256  # resamples drawn at once: bounds memory


class Measured(NamedTuple):
    """What a value is of: an item of a request, under a training seed (None: the profile's own)."""

    request: str
    item: str
    training_seed: int | None = None

    @classmethod
    def of(cls, row: EvaluationRow) -> "Measured":
        """Of a row; an item is a request, or an attempt, whose id begins with its trajectory's."""
        request = row.prompt_id or row.item_id.split("/")[0]
        return cls(request, row.item_id, row.training_seed)


Values = Mapping[Measured, float]


@dataclass(frozen=True)
class Interval:
    """The mean of `count` values, of so many requests, and the bounds of its interval."""

    mean: float
    low: float
    high: float
    count: int
    requests: int | None = None  # None: not clustered

    def in_percent(self) -> str:
        return f"{100 * self.mean:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"

    def __format__(self, sign: str) -> str:
        return f"{self.mean:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


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
    data, tail = np.asarray(values, dtype=float), 50 * (1 - confidence)
    sums, counts = _cluster(data, range(len(data)) if requests is None else requests)
    means = _resampled_means(sums, counts, seed, resamples)
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(float(data.mean()), float(low), float(high), len(data), len(sums))


def clustered_interval(values: Values, **bootstrap: Any) -> Interval:
    """The mean of values and its interval by request; see `mean_interval`."""
    in_order = sorted(values, key=str)
    requests = [each.request for each in in_order]
    return mean_interval([values[each] for each in in_order], requests=requests, **bootstrap)


def paired_difference(ours: Values, theirs: Values, **bootstrap: Any) -> Interval:
    """How much higher `ours` is than `theirs`, over the items and training seeds that both have.

    Pairing removes the variance between items, so that small differences show. ValueError if they
    have no item in common; `bootstrap`: see `mean_interval`.
    """
    common = ours.keys() & theirs.keys()
    return clustered_interval({each: ours[each] - theirs[each] for each in common}, **bootstrap)


@dataclass(frozen=True)
class Summary:
    """Some benchmarks. `values`: variant -> metric -> values, variants in table 5's order."""

    values: Mapping[str, Mapping[str, Values]]
    settings: EvaluationSettings = field(default_factory=EvaluationSettings)

    @classmethod
    def of(
        cls,
        rows: Iterable[EvaluationRow],
        benchmarks: str | Collection[str],
        settings: EvaluationSettings,
    ) -> "Summary":
        """The rows of one benchmark, or of several together."""
        names = {benchmarks} if isinstance(benchmarks, str) else set(benchmarks)
        values: dict[str, dict[str, dict[Measured, float]]] = defaultdict(lambda: defaultdict(dict))
        for row in rows:
            if row.benchmark in names:
                values[row.variant][row.metric][Measured.of(row)] = row.value
        order = [*VARIANTS, *values]
        ordered = sorted(values.items(), key=lambda entry: order.index(entry[0]))
        return cls({name: dict(metrics) for name, metrics in ordered}, settings)

    @property
    def variants(self) -> list[str]:
        return list(self.values)

    def mean(self, variant: str, metric: str) -> Interval | None:
        """A variant's mean of a metric; None where it was not measured."""
        values = self._values(variant, metric)
        return clustered_interval(values, **self._bootstrap) if values else None

    def difference(self, better: str, worse: str, metric: str) -> Interval | None:
        """How much higher a variant is than another, item by item; None: no common items."""
        ours, theirs = self._values(better, metric), self._values(worse, metric)
        if not ours.keys() & theirs.keys():
            return None
        return paired_difference(ours, theirs, **self._bootstrap)

    def spread(self, variant: str, metric: str) -> float | None:
        """Standard deviation of the means of the training seeds; None: fewer than two."""
        return _spread(self._values(variant, metric))

    def difference_spread(self, better: str, worse: str, metric: str) -> float | None:
        """The same, of the difference of two variants."""
        ours, theirs = self._values(better, metric), self._values(worse, metric)
        return _spread({each: ours[each] - theirs[each] for each in ours.keys() & theirs.keys()})

    def _values(self, variant: str, metric: str) -> Values:
        return self.values.get(variant, {}).get(metric, {})

    @property
    def _bootstrap(self) -> dict[str, Any]:
        return self.settings.model_dump(include={"seed", "resamples", "confidence"})


def means_table(summary: Summary) -> list[dict[str, object]]:
    """A row per variant: means with their intervals, and their spread over training seeds."""
    rows: list[dict[str, object]] = []
    for variant in summary.variants:
        row: dict[str, object] = {"variant": variant}
        for metric in METRICS:
            row |= _cells(metric, summary.mean(variant, metric), summary.spread(variant, metric))
        rows.append(row)
    return rows


def differences_table(summary: Summary) -> list[dict[str, object]]:
    """The same, of the pairs of `PAIRS` that were both evaluated."""
    rows: list[dict[str, object]] = []
    for pair in PAIRS:
        if set(pair) <= set(summary.variants):
            row: dict[str, object] = {"difference": " - ".join(pair)}
            for metric in METRICS:
                gap = summary.difference(*pair, metric)
                row |= _cells(metric, gap, summary.difference_spread(*pair, metric), "+")
            rows.append(row)
    return rows


def _cells(
    metric: str, interval: Interval | None, spread: float | None, sign: str = ""
) -> dict[str, object]:
    """A metric's column, and beside it its spread where there is one."""
    cells: dict[str, object] = {metric: "–" if interval is None else format(interval, sign)}
    return cells if spread is None else cells | {f"{metric}, SD of seeds": f"{spread:.3f}"}


def _spread(values: Values) -> float | None:
    by_seed: defaultdict[int | None, list[float]] = defaultdict(list)
    for measured, value in values.items():
        by_seed[measured.training_seed].append(value)
    return stdev(map(fmean, by_seed.values())) if len(by_seed) > 1 else None


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
