"""Evaluation rows as means with intervals, and the differences between variants, as tables."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from schemas.training import EvaluationRow

from .bootstrap import Interval, mean_interval, paired_difference
from .settings import EvaluationSettings
from .variants import PROMOTED, VARIANTS

METRICS = (
    "plan_valid",
    "plan_correct",
    "verdict_accuracy_true",
    "verdict_accuracy_false",
    "step_reward",
    "refined_gain",
    "final_success",
    "generator_calls",
)
# Pairs of variants that differ in one thing: who is expected to be better, than whom.
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
)


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
        """A variant's mean of a metric; None where it has none (a critic's without a critic)."""
        values = self.values.get(variant, {}).get(metric)
        return mean_interval(list(values.values()), **self._sureness) if values else None

    def difference(self, better: str, worse: str, metric: str) -> Interval | None:
        """How much higher a variant is than another, item by item; None: nothing in common."""
        ours, theirs = (self.values.get(v, {}).get(metric, {}) for v in (better, worse))
        if not ours.keys() & theirs.keys():
            return None
        return paired_difference(ours, theirs, **self._sureness)

    @property
    def _sureness(self) -> dict:
        chosen = self.settings
        return {
            "seed": chosen.seed,
            "resamples": chosen.resamples,
            "confidence": chosen.confidence,
        }


def means_table(summary: Summary) -> list[dict[str, object]]:
    """A row a variant, a column a metric: the mean and its interval."""
    return [
        {"variant": variant, **{m: _cell(summary.mean(variant, m)) for m in METRICS}}
        for variant in summary.variants
    ]


def differences_table(
    summary: Summary, pairs: Sequence[tuple[str, str]] = PAIRS
) -> list[dict[str, object]]:
    """A row a pair of variants that can be compared, a column a metric."""
    there = [pair for pair in pairs if set(pair) <= set(summary.variants)]
    return [
        {
            "difference": f"{better} - {worse}",
            **{m: _cell(summary.difference(better, worse, m), "+") for m in METRICS},
        }
        for better, worse in there
    ]


def _cell(interval: Interval | None, sign: str = "") -> str:
    if interval is None:
        return "–"
    mean, low, high = (f"{x:{sign}.3f}" for x in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"
