"""Several variants on all benchmarks of a lake: run, stored, and described for Dagster."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import dagster as dg

from inference.engine.progress import Progress
from schemas.training import EVALUATIONS, EvaluationRow
from schemas.trajectories import MODEL_CALLS, ModelCallRow

from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, table_metadata
from .agents import AgentFactory
from .graders import describe_grader, open_grader
from .items import Benchmark, load_benchmarks, pack_name
from .measure import ASSET, evaluate_variant
from .plots import final_images_sheet, interval_plot
from .summary import Summary, differences_table, means_table
from .variants import Variant


@dataclass(frozen=True)
class VariantComparison:
    """Variants, each evaluated on every benchmark.

    `finals`: benchmark -> variant -> request -> sha256 of its last image; `calls`: by id.
    """

    benchmarks: list[Benchmark]
    variants: list[str]
    rows: list[EvaluationRow] = field(default_factory=list)
    finals: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    calls: dict[str, ModelCallRow] = field(default_factory=dict)


def compare(
    foundry: FoundryResource, variants: Sequence[Variant], progress: Progress
) -> VariantComparison:
    """Evaluate variants one after the other on all benchmarks of the lake.

    Raises FoundryError where a checkpoint is missing, or a model gave no answer; finished calls
    are journaled.
    """
    profile, pack = foundry.settings, pack_name(foundry.settings)
    accept_at_least = profile.curation.critic.verdicts.accept_at_least
    benchmarks = load_benchmarks(foundry.home, pack, profile.evaluation, accept_at_least)
    comparison = VariantComparison(benchmarks, [variant.name for variant in variants])
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
            planner, critic = agents.planner(variant.planner), agents.critic(variant.critic)
            roles = replace(foundry.roles, planner=planner, critic=critic)
            named = _Named(progress, variant.name)
            resolved = variant.with_t_max(profile.evaluation.t_max)
            for benchmark in comparison.benchmarks:
                result = await evaluate_variant(
                    home, profile, grader, resolved, roles, benchmark, named
                )
                comparison.rows.extend(result.rows)
                comparison.finals.setdefault(benchmark.name, {})[variant.name] = result.finals
                comparison.calls.update((call.call_id, call) for call in result.calls)
        judged = grader.ledger() if grader else []
        comparison.calls.update((call.call_id, call) for call in judged)


def store_comparison(foundry: FoundryResource, comparison: VariantComparison) -> dict[str, int]:
    """Write rows, a partition per variant, and the ledger of calls; returns rows by table."""
    lake, rows = foundry.home.lake, comparison.rows
    for variant in comparison.variants:
        lake.write(EVALUATIONS, [row for row in rows if row.variant == variant], variant)
    lake.write(MODEL_CALLS, list(comparison.calls.values()), ASSET)
    return {EVALUATIONS.name: len(rows), MODEL_CALLS.name: len(comparison.calls)}


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
            success = {v: summary.values.get(v, {}).get("final_success", {}) for v in finals}
            sheet = final_images_sheet(foundry.home.images, benchmark.requests, finals, success)
            metadata[f"{name}/final_images"] = image_metadata(sheet, "Final images of a sample")
    return metadata


@dataclass(frozen=True)
class _Named:
    """Progress whose notes begin with the variant's name."""

    progress: Progress
    name: str

    def update(self, done: int, total: int, note: str = "") -> None:
        self.progress.update(done, total, f"{self.name} {note}".strip())
