"""Several variants on all benchmarks of a lake: run, stored, and described for Dagster."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import dagster as dg

from inference.calls.progress import Progress
from schemas.training import EVALUATIONS, EvaluationRow
from schemas.trajectories import MODEL_CALLS, ModelCallRow
from warehouse import Home

from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, table_metadata
from .agents import AgentFactory
from .graders import describe_grader, open_grader
from .items import Benchmark, load_benchmarks, pack_name
from .measure import ASSET, evaluate_variant
from .metrics import SUCCESS, Summary, differences_table, means_table
from .plots import final_images_sheet, interval_plot
from .settings import EvaluationSettings
from .variants import Variant

# (home, pack, settings, score from which "true" is correct)
BenchmarksOf = Callable[[Home, str, EvaluationSettings, float], list[Benchmark]]


@dataclass(frozen=True)
class VariantComparison:
    """Variants, each evaluated on every benchmark.

    `finals`: benchmark -> variant -> request -> sha256 of its last image (under the first training
    seed); `calls`: by id.
    """

    benchmarks: list[Benchmark]
    variants: list[Variant]
    rows: list[EvaluationRow] = field(default_factory=list)
    finals: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    calls: dict[str, ModelCallRow] = field(default_factory=dict)

    @property
    def row_counts(self) -> dict[str, int]:
        """Rows by table."""
        return {EVALUATIONS.name: len(self.rows), MODEL_CALLS.name: len(self.calls)}


def compare(
    foundry: FoundryResource,
    variants: Sequence[Variant],
    progress: Progress,
    load: BenchmarksOf = load_benchmarks,
) -> VariantComparison:
    """Evaluate variants one after the other on the benchmarks of the lake that `load` gives.

    Raises FoundryError where a checkpoint is missing, or a model gave no answer; finished calls
    are journaled.
    """
    profile, pack = foundry.settings, pack_name(foundry.settings)
    accept_at_least = profile.curation.critic.verdicts.accept_at_least
    benchmarks = load(foundry.home, pack, profile.evaluation, accept_at_least)
    comparison = VariantComparison(benchmarks, list(variants))
    asyncio.run(_evaluate(foundry, variants, comparison, progress))
    return comparison


async def _evaluate(
    foundry: FoundryResource,
    variants: Sequence[Variant],
    comparison: VariantComparison,
    progress: Progress,
) -> None:
    """Fill a comparison, in one event loop, to which a grader's slots belong."""
    home, profile, agents = foundry.home, foundry.settings, AgentFactory(foundry)
    with open_grader(foundry) as grader:
        for variant in variants:
            planner, critic = agents.planner(variant), agents.critic(variant)
            roles = replace(foundry.roles, planner=planner, critic=critic)
            named = _Named(progress, variant.partition)
            resolved = variant.with_t_max(profile.evaluation.t_max)
            for benchmark in comparison.benchmarks:
                result = await evaluate_variant(
                    home, profile, grader, resolved, roles, benchmark, named
                )
                comparison.rows.extend(result.rows)
                comparison.finals.setdefault(benchmark.name, {}).setdefault(
                    variant.name, result.finals
                )
                comparison.calls.update((call.call_id, call) for call in result.calls)
        judged = grader.ledger() if grader else []
        comparison.calls.update((call.call_id, call) for call in judged)


def joined(comparisons: Sequence[VariantComparison]) -> VariantComparison:
    """Comparisons on the same benchmarks, such as of several training seeds, as one."""
    first = comparisons[0]
    whole = VariantComparison(first.benchmarks, [])
    for each in comparisons:
        whole.variants.extend(each.variants)
        whole.rows.extend(each.rows)
        whole.calls.update(each.calls)
    whole.finals.update(first.finals)
    return whole


def store_comparison(foundry: FoundryResource, comparison: VariantComparison) -> None:
    """Write rows, a partition per variant and training seed, and calls."""
    lake, rows = foundry.home.lake, comparison.rows
    for variant in comparison.variants:
        key = variant.name, variant.training_seed
        own = [row for row in rows if (row.variant, row.training_seed) == key]
        lake.write(EVALUATIONS, own, variant.partition)
    lake.write(MODEL_CALLS, list(comparison.calls.values()), ASSET)


def comparison_metadata(
    foundry: FoundryResource, comparison: VariantComparison, rows: Sequence[EvaluationRow]
) -> dict[str, dg.MetadataValue]:
    grader = dg.MetadataValue.text(describe_grader(foundry))
    metadata: dict[str, dg.MetadataValue] = {"grader": grader}
    for benchmark in comparison.benchmarks:
        name = benchmark.name
        summary = Summary.of(rows, name, foundry.settings.evaluation)
        if summary.variants:
            metadata[f"{name}/means"] = table_metadata(means_table(summary))
            metadata[f"{name}/differences"] = table_metadata(differences_table(summary))
            plot = interval_plot(summary, name)
            metadata[f"{name}/plot"] = image_metadata(plot, f"Means of {name}")
        if benchmark.requests:
            finals = comparison.finals.get(name, {})
            success = {v: _success(summary, v) for v in finals}
            sheet = final_images_sheet(foundry.home.images, benchmark.requests, finals, success)
            metadata[f"{name}/final_images"] = image_metadata(sheet, "Final images of a sample")
    return metadata


def _success(summary: Summary, variant: str) -> dict[str, float]:
    """Whether final images are right, by request, under the first training seed."""
    values = summary.values.get(variant, {}).get(SUCCESS, {})
    found: dict[str, float] = {}
    for measured in sorted(values, key=lambda each: each.training_seed or 0):
        found.setdefault(measured.item, values[measured])
    return found


@dataclass(frozen=True)
class _Named:
    """Progress whose notes begin with the variant's name."""

    progress: Progress
    name: str

    def update(self, done: int, total: int, note: str = "") -> None:
        self.progress.update(done, total, f"{self.name} {note}".strip())
