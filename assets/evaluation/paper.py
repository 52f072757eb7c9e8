"""Our ablation compared with the paper's table 5: the same variants, other requests and models.

The paper's numbers are UEval scores (0-100) of FLUX.2-klein-9B with Qwen3-VL-8B agents, of texts
and of images; on held-out requests ours are shares of final images that are right, of which only
the order can be compared. On UEval the columns are the paper's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from schemas.training import EvaluationRow

from ..benchmarks.report import published_tables
from ..benchmarks.ueval import IMAGE, TEXT
from ..core.statistics import Interval
from .items import is_test
from .metrics import METRICS, SUCCESS, Summary
from .settings import EvaluationSettings
from .variants import VARIANTS

# UEval's scores as printed: of texts, of images, and their average. That of "+ Planner SFT" is
# printed as 60.5; its two cells, and the equal row T_max = 1, say 60.2.
_PRINTED = published_tables()["ablation"].systems
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


def side_by_side(summary: Summary) -> list[dict[str, object]]:
    """A row per variant: ours with its interval, and the paper's where it has one."""
    return [_row(summary, name) for name in summary.variants if name in VARIANTS]


def table_5(summary: Summary) -> list[dict[str, object]]:
    """The table in percent, as it is printed, with intervals over items: on UEval, text and image,
    and their mean; on another benchmark each of its metrics. Oracles have a row in any case."""
    measured = {metric for values in summary.values.values() for metric in values}
    metrics = [TEXT, IMAGE] if measured <= {TEXT, IMAGE} else sorted(measured)
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


def _row(summary: Summary, name: str) -> dict[str, object]:
    ours, calls = summary.mean(name, SUCCESS), summary.mean(name, "generator_calls")
    paper = TABLE_5.get(name, {})
    return {
        "variant": name,
        "final pictures right, here": f"{ours}" if ours else "–",
        "SD of seeds": _spread(ours),
        "generator calls per request, here": f"{calls.mean:.2f}" if calls else "–",
        "row of the paper": VARIANTS[name].paper or "–",
        "UEval, pictures": paper.get("image", "–"),
        "UEval, average": paper.get("average", "–"),
    }


# Variant -> what README calls it.
_ROWS = {
    "generator_only": "generator only",
    "untrained": "+ untrained agents, constrained to the form",
    "planner_sft": "+ planner",
    "full_sft": "+ critic, supervised",
    "sft_on_rl_labels": "+ critic, supervised on the rows of RL as well",
    "full_rl": "+ critic, reinforced",
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
        tables = (agents_table(summary), relations_table(summary))
        parts += [f"## {name}", measured_by(summary), *map(markdown_table, tables)]
    return "\n\n".join(parts)


def _cell(summary: Summary, variant: str, metric: str) -> str:
    if (mean := summary.mean(variant, metric)) is None:
        return ""
    return f"{mean}" if mean.spread is None else f"{mean} ± {mean.spread:.3f}"


def markdown_table(rows: Sequence[dict[str, object]]) -> str:
    """Rows with the same columns."""
    header = list(rows[0])
    lines = [header, ["---"] * len(header), *([str(row[c]) for c in header] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
