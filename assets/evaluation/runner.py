"""Several variants on all benchmarks of a lake: run, stored, and described for Dagster."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inference.calls.hashing import stable_hash
from inference.calls.progress import Progress
from inference.generation.trajectory_view import AttemptView, StepView, TrajectoryView
from inference.roles import PlanStep
from schemas.prompts import PromptRow
from schemas.training import EVALUATIONS, EvaluationRow
from schemas.trajectories import MODEL_CALLS, ModelCallRow
from warehouse import ImageStore

from ..core.foundry import FoundryResource
from ..core.metadata import image_metadata, model_call_costs, table_metadata
from ..core.plotting import OTHER, PALE, figure_png, label_rows, new_figure, plot_mean, small_png
from ..trajectories.contact_sheet import contact_sheet
from .agents import AgentFactory
from .grading import describe_grader, open_grader
from .items import HeldOutItems, is_test, load_benchmarks, pack_name
from .measure import ASSET, evaluate_variant
from .metrics import SUCCESS, TABLE_5, Summary, differences_table, means_table
from .variants import VARIANTS, Variant


@dataclass(frozen=True)
class VariantComparison:
    """Variants, each evaluated on every benchmark.

    `finals`: benchmark -> variant -> request -> sha256 of its last image (under the first training
    seed); `calls`: by id.
    """

    benchmarks: list[HeldOutItems]
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
    test_only: bool = False,
) -> VariantComparison:
    """Evaluate variants one after the other on the benchmarks of the lake.

    Args:
        test_only: on those that are only reported.

    Raises FoundryError where a checkpoint is missing, or a model gave no answer; finished calls
    are journaled.
    """
    profile, pack = foundry.settings, pack_name(foundry.settings)
    accept_at_least = profile.curation.critic.verdicts.accept_at_least
    found = load_benchmarks(foundry.home, pack, profile.evaluation, accept_at_least)
    benchmarks = [each for each in found if is_test(each.name) or not test_only]
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
            roles = agents.roles(variant)
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
    whole, *others = comparisons
    for each in others:
        whole.variants.extend(each.variants)
        whole.rows.extend(each.rows)
        whole.calls.update(each.calls)
    return whole


def store_comparison(foundry: FoundryResource, comparison: VariantComparison) -> None:
    """Write rows, a partition per variant and training seed, and calls."""
    lake, rows = foundry.home.lake, comparison.rows
    for variant in comparison.variants:
        key = variant.name, variant.training_seed
        own = [row for row in rows if (row.variant, row.training_seed) == key]
        lake.write(EVALUATIONS, own, variant.partition)
    lake.write(MODEL_CALLS, list(comparison.calls.values()), ASSET)


def comparison_metadata(foundry: FoundryResource, comparison: VariantComparison) -> dict[str, Any]:
    """Plots and images of every benchmark, then costs, then tables."""
    images, tables = dict[str, Any](), dict[str, Any]()
    for benchmark in comparison.benchmarks:
        name = benchmark.name
        summary = Summary.of(comparison.rows, name, foundry.settings.evaluation)
        if summary.variants:
            tables[f"{name}/means"] = table_metadata(means_table(summary))
            tables[f"{name}/differences"] = table_metadata(differences_table(summary))
        if benchmark.requests:
            plot, finals = beside_paper_plot(summary), comparison.finals.get(name, {})
            success = {v: _success(summary, v) for v in finals}
            sheet = final_images_sheet(foundry.home.images, benchmark.requests, finals, success)
            images[f"{name}/plot"] = image_metadata(plot, "Measured here, and in the paper")
            images[f"{name}/final_images"] = image_metadata(sheet, "Final images of a sample")
    costs = model_call_costs(list(comparison.calls.values()))
    return {**images, **costs, "grader": describe_grader(foundry), **tables}


def _success(summary: Summary, variant: str) -> dict[str, float]:
    """Whether final images are right, by request, under the first training seed."""
    values = summary.of_metric(variant, SUCCESS)
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


# variant -> item -> sha256 of its final image
Finals = Mapping[str, Mapping[str, str]]
# variant -> item -> 1 where that image is right, else 0; items that were not graded are missing
Success = Mapping[str, Mapping[str, float]]

_SUCCESS_CAPTIONS = {None: "not graded", 0.0: "not as asked for", 1.0: "as asked for"}


def beside_paper_plot(summary: Summary) -> bytes:
    """Final images that are right, here, and UEval's image score in table 5."""
    names = [name for name in VARIANTS if name in summary.variants]
    figures = new_figure(1.9 + 0.34 * len(names), "What each part contributes", columns=2)
    with figures as (figure, (ours, theirs)):
        ours.set_title("Final pictures right, here", fontsize=10)
        for row, name in enumerate(names):
            if mean := summary.mean(name, SUCCESS):
                plot_mean(ours, row, OTHER, mean.mean, mean.low, mean.high)
        ours.set_xlim(-0.03, 1.03)
        theirs.set_title("UEval of pictures, paper's table 5", fontsize=10)
        for row, name in enumerate(names):
            if name in TABLE_5:
                theirs.plot(TABLE_5[name]["image"], row, "o", color=PALE)
        theirs.set_xlim(0, 100)
        label_rows(ours, names)
        label_rows(theirs, [""] * len(names))
        return figure_png(figure)


def final_images_sheet(
    images: ImageStore,
    requests: Sequence[PromptRow],
    finals: Finals,
    success: Success,
    count: int = 6,
) -> bytes:
    """A row per request, an image per variant, captioned by whether it is right."""
    sampled = sorted(requests, key=lambda row: stable_hash("sheet", row.prompt_id))[:count]
    rows = [_request_view(images, request, finals, success) for request in sampled]
    sheet = contact_sheet(rows, image_size=112, columns=len(finals))
    return small_png(sheet, colours=255)


def _request_view(
    images: ImageStore, request: PromptRow, finals: Finals, success: Success
) -> TrajectoryView:
    """Variants as steps: the final image of each, or a caption where there is none."""
    item = request.prompt_id
    steps = []
    for number, variant in enumerate(finals, 1):
        caption = "no picture"
        attempts = []
        if sha256 := finals[variant].get(item):
            caption = _SUCCESS_CAPTIONS[success[variant].get(item)]
            attempts = [AttemptView(images.get(sha256), chosen=True)]
        step = PlanStep(number, variant.replace("_", " "), auxiliary_text=caption)
        steps.append(StepView(step, attempts))
    return TrajectoryView(
        request.text, steps=steps, category=request.category, subcategory=request.subcategory
    )
