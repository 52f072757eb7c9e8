"""Evaluation rows as means and differences with bootstrap intervals, and as tables.

Intervals are percentile bootstrap intervals (Efron 1979), seeded. Where every value is the same,
the interval is a point.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    ("full_sft", "planner_sft"),
    ("full_rl", "full_sft"),
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


@dataclass(frozen=True)
class Interval:
    """The mean of `count` values and the bounds of its interval."""

    mean: float
    low: float
    high: float
    count: int

    def __format__(self, sign: str) -> str:
        return f"{self.mean:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


def mean_interval(
    values: Sequence[float], seed: int = 0, resamples: int = 2000, confidence: float = 0.95
) -> Interval:
    """The mean of some values and its interval; ValueError if there are none."""
    if not len(values):
        raise ValueError("no values, so there is no mean")
    data, tail = np.asarray(values, dtype=float), 50 * (1 - confidence)
    low, high = np.percentile(_resampled_means(data, seed, resamples), [tail, 100 - tail])
    return Interval(float(data.mean()), float(low), float(high), len(data))


def paired_difference(
    ours: Mapping[str, float], theirs: Mapping[str, float], **bootstrap: Any
) -> Interval:
    """How much higher `ours` (item -> value) is than `theirs`, over the items that both have.

    Pairing removes the variance between items, so that small differences show. ValueError if they
    have no item in common; `bootstrap`: see `mean_interval`.
    """
    common = sorted(ours.keys() & theirs.keys())
    return mean_interval([ours[item] - theirs[item] for item in common], **bootstrap)


@dataclass(frozen=True)
class Summary:
    """One benchmark. `values`: variant -> metric -> item -> value, variants in table 5's order."""

    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    settings: EvaluationSettings = field(default_factory=EvaluationSettings)

    @classmethod
    def of(
        cls, rows: Iterable[EvaluationRow], benchmark: str, settings: EvaluationSettings
    ) -> "Summary":
        values: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        for row in rows:
            if row.benchmark == benchmark:
                values[row.variant][row.metric][row.item_id] = row.value
        order = [*VARIANTS, *values]
        ordered = sorted(values.items(), key=lambda entry: order.index(entry[0]))
        return cls({name: dict(metrics) for name, metrics in ordered}, settings)

    @property
    def variants(self) -> list[str]:
        return list(self.values)

    def mean(self, variant: str, metric: str) -> Interval | None:
        """A variant's mean of a metric; None where it was not measured."""
        values = self.values.get(variant, {}).get(metric)
        return mean_interval(list(values.values()), **self._bootstrap) if values else None

    def difference(self, better: str, worse: str, metric: str) -> Interval | None:
        """How much higher a variant is than another, item by item; None: no common items."""
        ours, theirs = (self.values.get(v, {}).get(metric, {}) for v in (better, worse))
        if not ours.keys() & theirs.keys():
            return None
        return paired_difference(ours, theirs, **self._bootstrap)

    @property
    def _bootstrap(self) -> dict[str, Any]:
        return self.settings.model_dump(include={"seed", "resamples", "confidence"})


def means_table(summary: Summary) -> list[dict[str, object]]:
    """A row per variant, a column per metric: the mean and its interval."""
    return [
        {"variant": variant, **{m: _cell(summary.mean(variant, m)) for m in METRICS}}
        for variant in summary.variants
    ]


def differences_table(summary: Summary) -> list[dict[str, object]]:
    """A row per pair of `PAIRS` that were both evaluated, a column per metric."""
    return [
        {
            "difference": f"{better} - {worse}",
            **{m: _cell(summary.difference(better, worse, m), "+") for m in METRICS},
        }
        for better, worse in PAIRS
        if {better, worse} <= set(summary.variants)
    ]


def _cell(interval: Interval | None, sign: str = "") -> str:
    return "–" if interval is None else format(interval, sign)


def _resampled_means(data: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    sizes = [min(_CHUNK, resamples - done) for done in range(0, resamples, _CHUNK)]
    parts = [data[rng.integers(len(data), size=(rows, len(data)))].mean(axis=1) for rows in sizes]
    return np.concatenate(parts)
