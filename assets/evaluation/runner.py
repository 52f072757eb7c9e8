"""Several variants on all benchmarks of a lake: run, stored, and described for Dagster."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from inference.engine.progress import Progress
from inference.roles import Roles
from schemas.training import EVALUATIONS, EvaluationRow
from schemas.trajectories import MODEL_CALLS, ModelCallRow

from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, table_metadata
from .agents import AgentFactory
from .graders import describe_grader, grader_of
from .items import Benchmark, load_benchmarks
from .measure import ASSET, BenchmarkResult, EvaluationContext, evaluate_variant
from .plots import final_images_sheet, interval_plot
from .summary import Summary, differences_table, means_table
from .variants import Variant


@dataclass(frozen=True)
class VariantComparison:
    """Variants by name, each evaluated on every benchmark: `parts[variant][benchmark]`."""

    benchmarks: tuple[Benchmark, ...]
    parts: dict[str, dict[str, BenchmarkResult]]

    def rows(self, variant: str) -> list[EvaluationRow]:
        return [row for part in self.parts[variant].values() for row in part.rows]

    @property
    def all_rows(self) -> list[EvaluationRow]:
        return [row for variant in self.parts for row in self.rows(variant)]

    @property
    def calls(self) -> list[ModelCallRow]:
        """Every call in the journals once: each variant's list has those of earlier ones, too."""
        lists = (part.calls for parts in self.parts.values() for part in parts.values())
        return list({call.call_id: call for calls in lists for call in calls}.values())


def compare(
    foundry: FoundryResource, agents: AgentFactory, variants: Sequence[Variant], progress: Progress
) -> VariantComparison:
    """Evaluate variants one after the other on all benchmarks of the lake.

    Raises:
        FoundryError: a checkpoint is missing, or a model gave no answer; finished calls are
            journaled.
    """
    settings = foundry.settings.evaluation
    accept_at_least = foundry.settings.curation.critic.verdicts.accept_at_least
    pack = Path(foundry.settings.pack).resolve().name  # a profile names a pack, or its folder
    benchmarks = load_benchmarks(foundry.home, pack, settings, accept_at_least)
    context = _evaluation_context(foundry)
    parts = {}
    for variant in variants:
        planner, critic = agents.planner(variant.planner), agents.critic(variant.critic)
        roles = Roles(planner, context.generator, critic, context.scorer)
        resolved, named = variant.with_t_max(settings.t_max), _Named(progress, variant.name)
        parts[variant.name] = {
            benchmark.name: asyncio.run(
                evaluate_variant(context, resolved, roles, benchmark, named)
            )
            for benchmark in benchmarks
        }
    return VariantComparison(tuple(benchmarks), parts)


def store_comparison(foundry: FoundryResource, comparison: VariantComparison) -> dict[str, int]:
    """Write rows, a partition per variant, and the ledger of calls; returns rows by table."""
    lake = foundry.home.lake
    rows = [
        lake.write(EVALUATIONS, comparison.rows(variant), variant).rows
        for variant in comparison.parts
    ]
    calls = lake.write(MODEL_CALLS, comparison.calls, ASSET).rows
    return {EVALUATIONS.name: sum(rows), MODEL_CALLS.name: calls}


def comparison_metadata(
    foundry: FoundryResource, comparison: VariantComparison, rows: Sequence[EvaluationRow]
) -> dict[str, dg.MetadataValue]:
    """The grader, and tables, plots and images of every benchmark that has items."""
    metadata: dict[str, dg.MetadataValue] = {
        "grader": dg.MetadataValue.text(describe_grader(foundry.settings))
    }
    by_benchmark = zip(comparison.benchmarks, summaries(foundry, comparison, rows), strict=True)
    for benchmark, summary in by_benchmark:
        name = benchmark.name
        if summary.variants:
            metadata[f"{name}/means"] = table_metadata(means_table(summary))
            metadata[f"{name}/differences"] = table_metadata(differences_table(summary))
            plot = interval_plot(summary, name)
            metadata[f"{name}/plot"] = image_metadata(plot, f"Means of {name}")
        if benchmark.requests:
            sheet = _final_images(foundry, comparison, benchmark, summary)
            metadata[f"{name}/final_images"] = image_metadata(sheet, "Final images of a sample")
    return metadata


def summaries(
    foundry: FoundryResource, comparison: VariantComparison, rows: Sequence[EvaluationRow]
) -> list[Summary]:
    """A summary per benchmark, in their order: the held-out requests come first."""
    settings = foundry.settings.evaluation
    return [Summary.of(rows, benchmark.name, settings) for benchmark in comparison.benchmarks]


def _evaluation_context(foundry: FoundryResource) -> EvaluationContext:
    """The profile's generator, scorer, grader and limits, with the evaluation's seed."""
    profile, settings = foundry.settings, foundry.settings.evaluation
    return EvaluationContext(
        home=foundry.home,
        generator=foundry.roles.generator,
        scorer=foundry.roles.scorer,
        grader=grader_of(profile),
        loop=profile.loop.model_copy(update={"seed": settings.seed}),
        limits=profile.limits,
        in_flight=settings.in_flight,
        redraws=settings.redraws,
    )


@dataclass(frozen=True)
class _Named:
    """Progress whose notes begin with the variant's name."""

    progress: Progress
    name: str

    def update(self, done: int, total: int, note: str = "") -> None:
        self.progress.update(done, total, f"{self.name} {note}".strip())


def _final_images(
    foundry: FoundryResource, comparison: VariantComparison, benchmark: Benchmark, summary: Summary
) -> bytes:
    finals = {name: parts[benchmark.name].finals for name, parts in comparison.parts.items()}
    success = {name: summary.values.get(name, {}).get("final_success", {}) for name in finals}
    return final_images_sheet(foundry.home.images, benchmark.requests, finals, success)
