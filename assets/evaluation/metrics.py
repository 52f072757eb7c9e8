"""Metrics of an evaluation, and its rows as means and differences with intervals, as tables."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

from schemas.training import EvaluationRow

from ..core.statistics import Interval, Observation, Values, clustered_interval, paired_difference
from .settings import EvaluationSettings
from .variants import NEW_CRITIC, NEW_PLANNER, PROMOTED, VARIANTS


@dataclass(frozen=True)
class Metric:
    """What is measured of a request or of a stored attempt.

    Args:
        source: who gives it: any grader, a judge by rubrics alone, a critic's verdict, or the run.
        low, high: its range, of which a `binary` one has only the ends.
        label: column of README's table; None: not in it.
    """

    name: str
    source: Literal["grader", "judge", "verdict", "run"]
    label: str | None = None
    low: float = 0.0
    high: float = 1.0
    binary: bool = False

    def allows(self, value: float) -> bool:
        return value in (self.low, self.high) if self.binary else self.low <= value <= self.high


SUCCESS = "final_success"
ACCURACY = {True: "verdict_accuracy_true", False: "verdict_accuracy_false"}  # by correct verdict
_GOOD, _BAD = "good pictures judged right", "bad pictures judged right"
METRICS = {
    metric.name: metric
    for metric in (
        Metric("plan_valid", "grader", binary=True),
        Metric("plan_correct", "grader", "plans right", binary=True),
        Metric(ACCURACY[True], "verdict", _GOOD, binary=True),
        Metric(ACCURACY[False], "verdict", _BAD, binary=True),
        Metric("step_reward", "verdict", "step reward", low=-1.0),
        Metric("refined_gain", "verdict", low=-10.0, high=10.0),
        Metric(SUCCESS, "grader", "sequences that end as requested", binary=True),
        Metric("criteria_met", "judge"),
        Metric("generator_calls", "run", high=inf),
    )
}
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


def observation_of(row: EvaluationRow) -> Observation:
    """What a row is of: a request, or an attempt, whose id begins with its trajectory's."""
    request = row.prompt_id or row.item_id.split("/")[0]
    return Observation(request, row.item_id, row.training_seed)


@dataclass(frozen=True)
class Summary:
    """A benchmark. `values`: variant -> metric -> values, variants in table 5's order."""

    values: Mapping[str, Mapping[str, Values]]
    settings: EvaluationSettings = field(default_factory=EvaluationSettings)

    @classmethod
    def of(
        cls, rows: Iterable[EvaluationRow], benchmark: str, settings: EvaluationSettings
    ) -> "Summary":
        values: dict[str, dict[str, dict[Observation, float]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        for row in rows:
            if row.benchmark == benchmark:
                values[row.variant][row.metric][observation_of(row)] = row.value
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
        return paired_difference(ours, theirs, **self._bootstrap)

    def _values(self, variant: str, metric: str) -> Values:
        return self.values.get(variant, {}).get(metric, {})

    @property
    def _bootstrap(self) -> dict[str, Any]:
        return self.settings.model_dump(include={"seed", "resamples", "confidence"})


def means_table(summary: Summary) -> list[dict[str, object]]:
    """A row per variant: means with their intervals, and their spread over training seeds."""
    return [
        {"variant": variant} | _cells({metric: summary.mean(variant, metric) for metric in METRICS})
        for variant in summary.variants
    ]


def differences_table(summary: Summary) -> list[dict[str, object]]:
    """The same, of the pairs of `PAIRS` that were both evaluated."""
    return [
        {"difference": " - ".join(pair)}
        | _cells({metric: summary.difference(*pair, metric) for metric in METRICS}, "+")
        for pair in PAIRS
        if set(pair) <= set(summary.variants)
    ]


def _cells(intervals: Mapping[str, Interval | None], sign: str = "") -> dict[str, object]:
    """A column of each metric, and beside it its spread where there is one."""
    cells: dict[str, object] = {}
    for metric, interval in intervals.items():
        cells[metric] = "–" if interval is None else format(interval, sign)
        if interval and interval.spread is not None:
            cells[f"{metric}, SD of seeds"] = f"{interval.spread:.3f}"
    return cells
