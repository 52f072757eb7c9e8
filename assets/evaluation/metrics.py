"""Metrics of an evaluation, and its rows as means and differences with intervals, as tables.

The ablation is compared with the paper's table 5: the same variants, other requests and models. The
paper's numbers are UEval scores (0-100) of FLUX.2-klein-9B with Qwen3-VL-8B agents, of texts and of
images; on held-out requests ours are shares of final images that are right, of which only the order
can be compared. On UEval the columns are the paper's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import fmean
from typing import Any, Literal

from schemas.training import EvaluationRow

from ..benchmarks.report import published_tables
from ..benchmarks.ueval import IMAGE, TEXT
from ..core.metadata import table_metadata
from ..core.statistics import Interval, Observation, Values, clustered_interval, paired_difference
from .items import is_test
from .settings import EvaluationSettings
from .variants import NEW_CRITIC, NEW_PLANNER, PROMOTED, VARIANTS


@dataclass(frozen=True)
class Metric:
    """What is measured of a request, or of a critic's verdict on a stored attempt.

    Args:
        source: who gives it: any grader, a judge by rubrics alone, a critic's verdict, or the run.
        label: column of README's table; None: not in it.
        low, high: its range, of which a `binary` one has only the ends.
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
_ALL = (
    Metric("plan_valid", "grader", binary=True),
    Metric("plan_correct", "grader", "plans right", binary=True),
    Metric("verdict_accuracy_true", "verdict", "good pictures judged right", binary=True),
    Metric("verdict_accuracy_false", "verdict", "bad pictures judged right", binary=True),
    Metric("step_reward", "verdict", "step reward", low=-1.0),
    Metric("refined_gain", "verdict", low=-10.0, high=10.0),
    Metric(SUCCESS, "grader", "sequences that end as requested", binary=True),
    Metric("criteria_met", "judge"),
    Metric("generator_calls", "run", high=inf),
)
METRICS = {metric.name: metric for metric in _ALL}


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
    ("rl_trajectory", "full_rl"),
    ("rl_trajectory", "full_sft"),
    ("rl_episode", "full_rl"),
    ("rl_episode", "full_sft"),
    ("full_sft", "one_agent"),
    ("rl_one_agent", "one_agent"),
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
    """A benchmark. `values`: variant (or system) -> metric -> values, in table 5's order."""

    values: Mapping[Any, Mapping[str, Values]]
    settings: EvaluationSettings = field(default_factory=EvaluationSettings)

    @classmethod
    def of(
        cls, rows: Iterable[EvaluationRow], benchmark: str, settings: EvaluationSettings
    ) -> "Summary":
        own = [row for row in rows if row.benchmark == benchmark]
        order = [*VARIANTS, *(row.variant for row in own)]
        found = cls.grouped(((row.variant, row) for row in own), settings).values.items()
        return cls(dict(sorted(found, key=lambda entry: order.index(entry[0]))), settings)

    @classmethod
    def grouped(
        cls, rows: Iterable[tuple[Any, EvaluationRow]], settings: EvaluationSettings
    ) -> "Summary":
        """Of rows that have what they are of beside them."""
        values: dict[Any, dict[str, dict[Observation, float]]] = {}
        for group, row in rows:
            metrics = values.setdefault(group, {})
            metrics.setdefault(row.metric, {})[observation_of(row)] = row.value
        return cls(values, settings)

    @property
    def variants(self) -> list[str]:
        return list(self.values)

    def of_metric(self, variant: Any, metric: str) -> Values:
        return self.values.get(variant, {}).get(metric, {})

    def mean(self, variant: Any, metric: str) -> Interval | None:
        """A variant's mean of a metric; None where it was not measured."""
        values = self.of_metric(variant, metric)
        return clustered_interval(values, **self._bootstrap) if values else None

    def difference(
        self, better: Any, worse: Any, metric: str, confidence: float | None = None
    ) -> Interval | None:
        """How much higher a variant is than another, item by item; None: no common items."""
        ours, theirs = self.of_metric(better, metric), self.of_metric(worse, metric)
        own = {"confidence": confidence} if confidence else {}
        return paired_difference(ours, theirs, **(self._bootstrap | own))

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


# UEval's scores as printed: of texts, of images, and their average. That of "+ Planner SFT" is
# printed as 60.5; its two cells, and the equal row T_max = 1, say 60.2.
_PRINTED = published_tables()["ablation"]["systems"]
TABLE_5 = {name: _PRINTED[each.paper] for name, each in VARIANTS.items() if each.paper}

# (worse, better): what the paper's table claims.
RELATIONS = (
    ("generator_only", "planner_sft"),
    ("planner_sft", "full_sft"),
    ("full_sft", "full_rl"),
    ("full_sft_sampled", "full_rl_sampled"),
    ("full_sft", "rl_no_step"),
    ("full_sft", "rl_no_accuracy"),
    ("rl_no_step", "full_rl"),
    ("rl_no_accuracy", "full_rl"),
    ("one_agent", "full_sft"),
    ("unfiltered", "full_sft"),
    ("t_max_1", "t_max_3"),
    ("t_max_3", "t_max_5"),
)
Outcome = Literal["reproduced", "within noise", "reversed", "not measured"]


@dataclass(frozen=True)
class Relation:
    """Two variants of which the paper's `better` is better; `gap`: by how much it is here."""

    worse: str
    better: str
    gap: Interval | None

    @property
    def outcome(self) -> Outcome:
        """Reproduced and reversed only where the interval is clear of zero."""
        if self.gap is None:
            return "not measured"
        if self.gap.low > 0:
            return "reproduced"
        return "reversed" if self.gap.high < 0 else "within noise"


def table_5(summary: Summary, metrics: Sequence[str] = ()) -> list[dict[str, object]]:
    """The table in percent, as it is printed, with intervals and the paper's numbers beside.

    Without `metrics` it is of a benchmark: on UEval, text and image, and their mean; on another one
    each of its metrics. Oracles have a row in any case.
    """
    measured = {metric for values in summary.values.values() for metric in values}
    metrics = metrics or ([TEXT, IMAGE] if measured <= {TEXT, IMAGE} else sorted(measured))
    shown = [name for name in VARIANTS if name in summary.variants or VARIANTS[name].provider]
    return [_percentages(summary, name, metrics) for name in shown]


def _percentages(summary: Summary, name: str, metrics: Sequence[str]) -> dict[str, object]:
    row: dict[str, object] = {"variant": name}
    means = [summary.mean(name, metric) for metric in metrics]
    for metric, mean in zip(metrics, means, strict=True):
        title = metric.removesuffix("_rate")
        row[f"{title}, here"] = f"{mean.in_percent()}" if mean else "–"
        if mean and mean.spread is not None:
            row[f"{title}, SD of seeds"] = f"{100 * mean.spread:.1f}"
    known = [mean.mean for mean in means if mean]
    row["average, here"] = f"{100 * fmean(known):.1f}" if len(known) == len(means) else "–"
    row["row of the paper"] = VARIANTS[name].paper or "–"
    for column in ("text", "image", "average"):
        row[f"{column}, paper"] = TABLE_5.get(name, {}).get(column, "–")
    return row


def relations(summary: Summary, measure: str = SUCCESS) -> list[Relation]:
    """What is here of each relation of the paper's table 5, by a metric."""
    return [
        Relation(worse, better, summary.difference(better, worse, measure))
        for worse, better in RELATIONS
    ]


def relations_table(summary: Summary, measure: str = SUCCESS) -> list[dict[str, object]]:
    """A row per relation: the paper's gap, ours with its interval, and the outcome."""
    return [
        {
            "relation": f"{each.worse} < {each.better}",
            "UEval of pictures, paper": f"{_gap_of_paper(each):+.1f}",
            "difference here": format(each.gap, "+") if each.gap else "–",
            "SD of seeds": _spread(each.gap),
            "requests": each.gap.requests if each.gap else 0,
            "outcome": each.outcome,
        }
        for each in relations(summary, measure)
    ]


def _spread(interval: Interval | None) -> str:
    return f"{interval.spread:.3f}" if interval and interval.spread is not None else "–"


def _gap_of_paper(relation: Relation) -> float:
    return TABLE_5[relation.better]["image"] - TABLE_5[relation.worse]["image"]


# Variant -> what README calls it.
_ROWS = {
    "generator_only": "generator only",
    "untrained": "+ untrained agents, constrained to the form",
    "planner_sft": "+ planner",
    "full_sft": "+ critic, supervised",
    "sft_on_rl_labels": "+ critic, supervised on the rows of RL as well",
    "full_rl": "+ critic, reinforced",
    "rl_trajectory": "+ critic, reinforced by whole trajectories",
    "rl_episode": "+ critic, reinforced on all its answers of trajectories",
    "planner_rl": "+ planner reinforced, critic supervised",
    "both_rl": "+ planner and critic reinforced",
    "full_sft_sampled": "+ critic, supervised, answers sampled",
    "full_rl_sampled": "+ critic, reinforced, answers sampled",
}
_OTHERS = "-heldout-category-test"  # requests of categories that were never trained on


def test_summaries(
    rows: Iterable[EvaluationRow], settings: EvaluationSettings
) -> dict[str, Summary]:
    """By test benchmark: the ablation, over its training seeds; without any, `evaluation`.

    New requests of categories that were trained on come first. Those of other categories are never
    counted with them: where agents fail at all of these, they would hide every difference.
    """
    test = [row for row in rows if is_test(row.benchmark)]
    ablation = [row for row in test if row.training_seed is not None]
    chosen = ablation or test
    names = sorted({row.benchmark for row in chosen}, key=lambda n: (n.endswith(_OTHERS), n))
    return {name: Summary.of(chosen, name, settings) for name in names}


def agents_table(summary: Summary) -> list[dict[str, object]]:
    """README's table: means with intervals by request, and their spread over training seeds."""
    rows = []
    for variant in filter(summary.variants.__contains__, _ROWS):
        row: dict[str, object] = {"": _ROWS[variant]}
        for metric in METRICS.values():
            if metric.label:
                row[metric.label] = _cell(summary, variant, metric.name)
        rows.append(row)
    return rows


def measured_by(summary: Summary) -> str:
    """Requests, training seeds and confidence of the numbers, in a sentence."""
    outcomes = [each for values in summary.values.values() for each in values.get(SUCCESS, {})]
    requests = len({each.request for each in outcomes})
    seeds = {each.training_seed for each in outcomes}
    return (
        f"{requests} test requests, {len(seeds)} training seeds; mean [interval at "
        f"{summary.settings.confidence:g}, by request], ± standard deviation over seeds."
    )


def markdown(summaries: Mapping[str, Summary]) -> str:
    """Agents and the paper's relations as Markdown, for every benchmark."""
    parts: list[str] = []
    for name, summary in summaries.items():
        tables = map(table_metadata, (agents_table(summary), relations_table(summary)))
        parts += [f"## {name}", measured_by(summary), *(str(each.value) for each in tables)]
    return "\n\n".join(parts)


def _cell(summary: Summary, variant: str, metric: str) -> str:
    if (mean := summary.mean(variant, metric)) is None:
        return ""
    return f"{mean}" if mean.spread is None else f"{mean} ± {mean.spread:.3f}"
