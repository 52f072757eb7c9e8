"""Several variants on all benchmarks of a lake: what the assets of this room have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from inference.engine.progress import Progress
from inference.roles import Roles
from inference.settings import LoopSettings
from schemas.training import EVALUATIONS, EvaluationRow
from schemas.trajectories import MODEL_CALLS, ModelCallRow

from ..core.foundry import FoundryResource, run_async
from ..core.node import picture, sample
from .agents import AgentFactory
from .final_images import finals_sheet
from .items import Benchmark, benchmarks
from .measure import ASSET, Evaluated, EvaluationContext, evaluate
from .plots import interval_plot
from .settings import EvaluationSettings
from .summary import Summary, differences_table, means_table
from .variants import Variant


@dataclass(frozen=True)
class Compared:
    """Variants by name, each evaluated on every benchmark: `parts[variant][benchmark]`."""

    benchmarks: tuple[Benchmark, ...]
    parts: dict[str, dict[str, Evaluated]]

    def rows(self, variant: str) -> list[EvaluationRow]:
        return [row for part in self.parts[variant].values() for row in part.rows]

    @property
    def all_rows(self) -> list[EvaluationRow]:
        return [row for variant in self.parts for row in self.rows(variant)]

    @property
    def calls(self) -> list[ModelCallRow]:
        """Every call in the journals, each once: later variants saw those of earlier ones."""
        every = (part.calls for parts in self.parts.values() for part in parts.values())
        return list({call.call_id: call for calls in every for call in calls}.values())


def compare(
    foundry: FoundryResource, cast: AgentFactory, variants: Sequence[Variant], progress: Progress
) -> Compared:
    """Evaluate variants one after the other on all benchmarks of the lake.

    Raises:
        FoundryError: a checkpoint is missing, or a model gave no answer; finished calls are kept.
    """
    settings = foundry.settings.evaluation
    accept = foundry.settings.curation.critic.verdicts.accept_at_least
    found = benchmarks(foundry.home, foundry.settings.pack, settings, accept)
    studio = evaluation_context(foundry, settings)
    parts = {
        variant.name: _evaluated(
            cast, studio, variant.with_t_max(settings.t_max), found, _Named(progress, variant.name)
        )
        for variant in variants
    }
    return Compared(tuple(found), parts)


def evaluation_context(foundry: FoundryResource, settings: EvaluationSettings) -> EvaluationContext:
    """The profile's generator, scorer and limits, with the evaluation's seed."""
    loop: LoopSettings = foundry.settings.loop.model_copy(update={"seed": settings.seed})
    roles, limits = foundry.roles, foundry.settings.limits
    return EvaluationContext(
        foundry.home,
        roles.generator,
        roles.scorer,
        loop,
        limits,
        settings.in_flight,
        settings.redraws,
    )


def store(foundry: FoundryResource, compared: Compared) -> dict[str, int]:
    """Write rows, a partition a variant, and the ledger of calls; rows by table."""
    lake = foundry.home.lake
    written = [
        lake.write(EVALUATIONS, compared.rows(variant), variant).rows for variant in compared.parts
    ]
    calls = lake.write(MODEL_CALLS, compared.calls, ASSET).rows
    return {EVALUATIONS.name: sum(written), MODEL_CALLS.name: calls}


def stored_rows(foundry: FoundryResource, variants: Sequence[str]) -> list[EvaluationRow]:
    """Rows of some variants as the lake has them."""
    return [row for variant in variants for row in foundry.rows(EVALUATIONS, variant)]


def described(
    foundry: FoundryResource, compared: Compared, rows: Sequence[EvaluationRow]
) -> dict[str, dg.MetadataValue]:
    """Tables, plots and pictures of every benchmark that has items."""
    metadata: dict[str, dg.MetadataValue] = {}
    for benchmark, summary in zip(
        compared.benchmarks, summaries(foundry, compared, rows), strict=True
    ):
        name = benchmark.name
        if summary.variants:
            metadata[f"{name}/means"] = sample(means_table(summary))
            metadata[f"{name}/differences"] = sample(differences_table(summary))
            metadata[f"{name}/plot"] = picture(interval_plot(summary, name), f"Means of {name}")
        if benchmark.stories:
            sheet = _sheet(foundry, compared, benchmark, summary)
            metadata[f"{name}/pictures"] = picture(sheet, "Last pictures of some stories")
    return metadata


def summaries(
    foundry: FoundryResource, compared: Compared, rows: Sequence[EvaluationRow]
) -> list[Summary]:
    """Of every benchmark, in their order: the held-out requests come first."""
    settings = foundry.settings.evaluation
    return [Summary.of(rows, benchmark.name, settings) for benchmark in compared.benchmarks]


def _evaluated(
    cast: AgentFactory,
    studio: EvaluationContext,
    variant: Variant,
    found: Sequence[Benchmark],
    progress: Progress,
) -> dict[str, Evaluated]:
    planner, critic = cast.planner(variant.planner), cast.critic(variant.critic)
    roles = Roles(planner, studio.generator, critic, studio.scorer)
    return {
        benchmark.name: run_async(evaluate(studio, variant, roles, benchmark, progress))
        for benchmark in found
    }


@dataclass(frozen=True)
class _Named:
    """Progress with the variant's name beside it."""

    progress: Progress
    name: str

    def update(self, done: int, total: int, note: str = "") -> None:
        self.progress.update(done, total, f"{self.name} {note}".strip())


def _sheet(
    foundry: FoundryResource, compared: Compared, benchmark: Benchmark, summary: Summary
) -> bytes:
    finals = {name: parts[benchmark.name].finals for name, parts in compared.parts.items()}
    right: dict[str, Any] = {
        name: summary.values.get(name, {}).get("final_success", {}) for name in finals
    }
    return finals_sheet(foundry.home.images, benchmark.stories, finals, right)
