"""What README says of the trained agents, from the table `evaluations`: test items only."""

from collections.abc import Iterable, Mapping, Sequence

from schemas.training import EvaluationRow

from .items import is_test
from .metrics import METRICS, SUCCESS, Summary
from .paper import relations_table
from .settings import EvaluationSettings

# Variant -> what README calls it.
_ROWS = {
    "generator_only": "generator only",
    "untrained": "+ untrained agents, constrained to the form",
    "planner_sft": "+ planner",
    "full_sft": "+ critic, supervised",
    "sft_on_rl_labels": "+ critic, supervised on the rows of RL as well",
    "full_rl": "+ critic, reinforced",
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
    spread = summary.spread(variant, metric)
    return f"{mean}" if spread is None else f"{mean} ± {spread:.3f}"


def markdown_table(rows: Sequence[dict[str, object]]) -> str:
    """Rows with the same columns."""
    header = list(rows[0])
    lines = [header, ["---"] * len(header), *([str(row[c]) for c in header] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
