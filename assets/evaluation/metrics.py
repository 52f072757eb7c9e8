"""Metrics of an evaluation, and its rows as means and differences with intervals, as tables.

A metric is an entry of `METRICS` with the function that gives it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from statistics import fmean
from typing import Any, Literal

from inference.roles import OutcomeGrade, PlanGrade
from schemas.training import EvaluationRow
from training.rewards.reward import Grades, neutral_step_reward, step_reward

from ..core.statistics import Interval, Observation, Values, clustered_interval, paired_difference
from .items import StoredAttempt
from .settings import EvaluationSettings
from .variants import NEW_CRITIC, NEW_PLANNER, PROMOTED, VARIANTS


@dataclass(frozen=True)
class RequestOfVariant:
    """A request that a variant has run; None: nobody says it, or there is no plan to draw."""

    plan: PlanGrade
    outcome: OutcomeGrade
    generator_calls: int | None


@dataclass(frozen=True)
class VerdictOfVariant:
    """A verdict on a stored attempt; `redraws`: grades of its new prompt's images, if it counts."""

    attempt: StoredAttempt
    accepted: bool
    redraws: Sequence[Grades] = ()


def _step_reward(verdict: VerdictOfVariant) -> float | None:
    """That of training, in the paper's form; accepting what deserves a rejection gains nothing."""
    if verdict.attempt.truth:
        return None
    gains = [step_reward(verdict.attempt.grades, each) for each in verdict.redraws]
    return fmean(gains) if gains else neutral_step_reward()


def _refined_gain(verdict: VerdictOfVariant) -> float | None:
    """In points of the overall score, of rejections alone."""
    gains = [each.overall - verdict.attempt.grades.overall for each in verdict.redraws]
    return fmean(gains) if gains else None


def _right_about_good(verdict: VerdictOfVariant) -> bool | None:
    return verdict.accepted if verdict.attempt.truth else None


def _right_about_bad(verdict: VerdictOfVariant) -> bool | None:
    return None if verdict.attempt.truth else not verdict.accepted


@dataclass(frozen=True)
class Metric:
    """What is measured of a request (`RequestOfVariant`) or a stored attempt (`VerdictOfVariant`).

    Args:
        source: who gives it: any grader, a judge by rubrics alone, a critic's verdict, or the run.
        of: its value; None: it has none.
        label: column of README's table; None: not in it.
        low, high: its range, of which a `binary` one has only the ends.
    """

    name: str
    source: Literal["grader", "judge", "verdict", "run"]
    of: Callable[[Any], float | None]
    label: str | None = None
    low: float = 0.0
    high: float = 1.0
    binary: bool = False

    def allows(self, value: float) -> bool:
        return value in (self.low, self.high) if self.binary else self.low <= value <= self.high


SUCCESS = "final_success"
_GOOD, _BAD = "good pictures judged right", "bad pictures judged right"
_ENDS = "sequences that end as requested"
_ALL = (
    Metric("plan_valid", "grader", attrgetter("plan.valid"), binary=True),
    Metric("plan_correct", "grader", attrgetter("plan.correct"), "plans right", binary=True),
    Metric("verdict_accuracy_true", "verdict", _right_about_good, _GOOD, binary=True),
    Metric("verdict_accuracy_false", "verdict", _right_about_bad, _BAD, binary=True),
    Metric("step_reward", "verdict", _step_reward, "step reward", low=-1.0),
    Metric("refined_gain", "verdict", _refined_gain, low=-10.0, high=10.0),
    Metric(SUCCESS, "grader", attrgetter("outcome.success"), _ENDS, binary=True),
    Metric("criteria_met", "judge", attrgetter("outcome.criteria_met")),
    Metric("generator_calls", "run", attrgetter("generator_calls"), high=inf),
)
METRICS = {metric.name: metric for metric in _ALL}


def values_of(measured: RequestOfVariant | VerdictOfVariant) -> dict[str, float]:
    """Metric -> value, of those that it has."""
    is_verdict = isinstance(measured, VerdictOfVariant)
    own = (metric for metric in _ALL if (metric.source == "verdict") == is_verdict)
    values = {metric.name: metric.of(measured) for metric in own}
    return {name: float(value) for name, value in values.items() if value is not None}


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
