"""The assets `evaluation` and `ablation`: variants of the system on held-out requests."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from inference.backends.checkpoint.manifest import is_agent_of
from inference.calls.hashing import content_digest
from inference.generators import generator_shares
from inference.roles import qualified_name
from schemas.benchmarks import BENCHMARK_SCORES, BenchmarkScoreRow
from schemas.prompts import PROMPTS
from schemas.training import (
    BASE_MODEL,
    CRITIC,
    EVALUATIONS,
    PLANNER,
    REPORTED_RECIPES,
    RL_PLANNER,
    SFT_CRITIC,
    EvaluationRow,
    ReportedRecipeRow,
)
from schemas.trajectories import ATTEMPTS, MODEL_CALLS
from training.registry import CheckpointRegistry
from warehouse.atomic import atomic_write

from ..checkpoints.recipes import LINEAGE, Recipe, agent_names
from ..core.checks import Violations, blocking_checks
from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..core.node import Node
from ..core.progress import progress_of
from ..reviews.assets import evaluation_metadata, shard_labels
from .ablation import train_variants
from .ablation_benchmark import (
    ablation_page,
    benchmark_hashes,
    benchmark_inputs,
    benchmark_summary,
    measure_on_benchmark,
)
from .agents import oracle_problem
from .grading import has_exact_grader
from .items import is_test
from .metrics import IMAGE, METRICS, SUCCESS, agents_table, relations_table, table_5, test_summaries
from .runner import VariantComparison, compare, comparison_metadata, joined, store_comparison
from .systems import System, candidate_systems, is_system_variant, reference_systems
from .variants import NEWEST, SEED, VARIANTS, Variant


def ablation_variants(foundry: FoundryResource) -> list[Variant]:
    """Those of the settings, under every training seed of the ablation."""
    settings = foundry.settings.evaluation.ablation
    return [each for seed in settings.training_seeds for each in _seed_variants(foundry, seed)]


def _seed_variants(foundry: FoundryResource, training_seed: int) -> list[Variant]:
    named = [VARIANTS[name] for name in foundry.settings.evaluation.ablation.variants]
    made = {BASE_MODEL, *chain.from_iterable(agent_names(foundry).values())}
    lacking = LINEAGE.keys() - made
    possible = [
        each
        for each in named
        if not oracle_problem(foundry.settings, each) and lacking.isdisjoint(each.agents)
    ]
    return [replace(variant, training_seed=training_seed) for variant in possible]


def evaluation_variants(foundry: FoundryResource) -> list[Variant]:
    """Those of the settings, and those of the systems that promotion compares."""
    variants = [VARIANTS[name] for name in _named_variants(foundry)]
    return [*variants, *(each.variant(name) for name, each in _compared_systems(foundry).items())]


def _named_variants(foundry: FoundryResource) -> list[str]:
    """Those of the settings, and those with a reinforced planner once there is one."""
    names = list(foundry.settings.evaluation.variants)
    has_planner = RL_PLANNER in agent_names(foundry)["planner"]
    if has_planner and CheckpointRegistry(foundry.home).rows(RL_PLANNER):
        names += (variant for (planner, _), variant in NEWEST.items() if planner == RL_PLANNER)
    return list(dict.fromkeys(names))


def _compared_systems(foundry: FoundryResource) -> dict[str, System]:
    """What promotion compares, without the newest system, which is a variant of the settings."""
    systems = candidate_systems(foundry) | reference_systems(foundry)
    return {name: system for name, system in systems.items() if is_system_variant(name)}


def _evaluation_inputs(foundry: FoundryResource, _instance: dg.DagsterInstance) -> list[str]:
    """The systems that are compared beside the newest."""
    return [f"{name}: {system}" for name, system in _compared_systems(foundry).items()]


def _generator_and_graders(foundry: FoundryResource) -> list[str]:
    """Who draws and grades: other models give other values, and so does a missing grader."""
    roles, profile = foundry.roles, foundry.settings
    drawing = [qualified_name(generator) for generator, _ in generator_shares(roles)]
    names = [*drawing, qualified_name(roles.scorer)]
    if judge := profile.evaluation.judge:
        return [*names, f"judge {judge.backend}/{judge.model.identity}"]
    return names if has_exact_grader(profile) else [*names, "no grader"]


def _evaluation_hashes(foundry: FoundryResource) -> list[str | None]:
    """Of the partitions that `evaluation` wrote; the others are the ablation's."""
    lake = foundry.home.lake
    systems = filter(is_system_variant, sorted(lake.partitions(EVALUATIONS)))
    names = [*_named_variants(foundry), *systems]
    return [lake.content_hash(EVALUATIONS, name) for name in names]


def _ablation_inputs(foundry: FoundryResource, _instance: dg.DagsterInstance) -> list[str]:
    inputs = [variant.partition for variant in ablation_variants(foundry)]
    if benchmark := foundry.settings.evaluation.ablation.benchmark:
        inputs += benchmark_inputs(foundry, benchmark)
    return inputs


def _ablation_hashes(foundry: FoundryResource) -> list[str | None]:
    lake = foundry.home.lake
    if benchmark := foundry.settings.evaluation.ablation.benchmark:
        return benchmark_hashes(foundry, benchmark)
    return [lake.content_hash(EVALUATIONS, each.partition) for each in ablation_variants(foundry)]


EVALUATION = Node(
    name="evaluation",
    group="evaluation",
    description="Variants of the system on held-out requests and attempts.",
    tables=(EVALUATIONS, REPORTED_RECIPES),
    ledger=(MODEL_CALLS,),
    deps=(
        *("prompts", "plans", "trajectories", "scores", "rubrics"),
        *(PLANNER, RL_PLANNER, SFT_CRITIC, CRITIC),
    ),
    arrows=("scores", "rubrics", PLANNER, RL_PLANNER, CRITIC),
    sections=("evaluation", "training", "loop"),
    pool="gpu_train",
    config=_generator_and_graders,
    inputs=_evaluation_inputs,
    output_hashes=_evaluation_hashes,
)
ABLATION = Node(
    name="ablation",
    group="ablation",
    description="Every variant of the paper's table 5, with checkpoints of its own where it needs "
    "them, once per training seed, compared with the paper's numbers. Takes hours: materialized "
    "only when selected.",
    tables=(EVALUATIONS,),
    ledger=(MODEL_CALLS,),
    deps=("evaluation", "exports", BASE_MODEL, PLANNER, RL_PLANNER, SFT_CRITIC, CRITIC),
    arrows=("evaluation",),
    sections=("evaluation", "training", "curation", "loop"),
    pool="gpu_train",
    config=_generator_and_graders,
    inputs=_ablation_inputs,
    output_hashes=_ablation_hashes,
    optional=True,
)


@dg.asset(**EVALUATION.asset_args())
def evaluation(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    comparison = compare(foundry, evaluation_variants(foundry), progress_of(context))
    store_comparison(foundry, comparison)
    _delete_others(foundry, comparison.variants, is_system_variant)
    reported = record_reported(foundry, comparison.rows)
    row_counts = comparison.row_counts | {REPORTED_RECIPES.name: reported}
    accept_at_least = foundry.settings.curation.critic.verdicts.accept_at_least
    labels = shard_labels(foundry.home, None, accept_at_least)
    metadata = comparison_metadata(foundry, comparison)
    metadata |= evaluation_metadata(comparison.rows, labels)
    return EVALUATION.describe(context, foundry, row_counts, metadata)


def _delete_others(
    foundry: FoundryResource, evaluated: Iterable[Variant], is_own: Callable[[str], bool]
) -> None:
    """Remove values of an asset's own variants that it no longer evaluates."""
    lake, current = foundry.home.lake, {variant.partition for variant in evaluated}
    for name in lake.partitions(EVALUATIONS):
        if is_own(name) and name not in current:
            lake.delete(EVALUATIONS, name)


@dg.asset(**ABLATION.asset_args())
def ablation(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    settings = foundry.settings.evaluation
    if settings.ablation.benchmark:
        return _ablation_on_benchmark(context, foundry, settings.ablation.benchmark)
    seeds = [_ablation_of_seed(context, foundry, s) for s in settings.ablation.training_seeds]
    comparison = joined(seeds)
    _delete_others(foundry, comparison.variants, lambda partition: SEED in partition)
    summary, *_ = test_summaries(comparison.rows, settings).values()
    metadata = {
        "table_5": table_metadata(table_5(summary, [SUCCESS])),
        "relations": table_metadata(relations_table(summary)),
        "agents": table_metadata(agents_table(summary)),
        **comparison_metadata(foundry, comparison),
    }
    return ABLATION.describe(context, foundry, comparison.row_counts, metadata)


def _ablation_of_seed(
    context: dg.AssetExecutionContext, foundry: FoundryResource, training_seed: int
) -> VariantComparison:
    """Train and evaluate all variants under a training seed; stored, before the next one begins."""
    variants = _seed_variants(foundry, training_seed)
    asyncio.run(train_variants(context, foundry, variants))
    comparison = compare(foundry, variants, progress_of(context), test_only=True)
    store_comparison(foundry, comparison)
    return comparison


def _ablation_on_benchmark(
    context: dg.AssetExecutionContext, foundry: FoundryResource, benchmark: str
) -> dg.MaterializeResult:
    """Train and measure all variants; a training seed is stored before the next one begins."""
    settings, scores = foundry.settings.evaluation, dict[Variant, list[BenchmarkScoreRow]]()
    for training_seed in settings.ablation.training_seeds:
        variants = _seed_variants(foundry, training_seed)
        asyncio.run(train_variants(context, foundry, variants))
        scores |= measure_on_benchmark(foundry, variants, benchmark, progress_of(context))
    summary = benchmark_summary(scores, settings)
    metadata = {
        "table_5": table_metadata(table_5(summary)),
        "relations": table_metadata(relations_table(summary, IMAGE)),
    }
    page = ablation_page(foundry.home, benchmark)
    texts = [f"# The ablation on {benchmark}", *(str(each.value) for each in metadata.values())]
    atomic_write(page, "\n\n".join(texts) + "\n")
    counts = {EVALUATIONS.name: 0, BENCHMARK_SCORES.name: sum(map(len, scores.values()))}
    path = dg.MetadataValue.path(str(page))
    return ABLATION.describe(context, foundry, counts, {**metadata, "page": path})


def record_reported(foundry: FoundryResource, rows: Iterable[EvaluationRow]) -> int:
    """Store which of the newest recipes have test numbers in `rows`; returns how many."""
    if foundry.reduced:
        return 0
    agents = {
        agent for row in rows if is_test(row.benchmark) for agent in (row.planner, row.critic)
    }
    reported = [
        recipe
        for recipe in _newest_recipes(foundry)
        if any(is_agent_of(f"{recipe.name}@{recipe.version}", agent) for agent in agents)
    ]
    for recipe in reported:
        partition = f"{recipe.name}-{recipe.version}"
        if not foundry.home.lake.exists(REPORTED_RECIPES, partition):
            row = ReportedRecipeRow(
                name=recipe.name,
                version=recipe.version,
                settings_hash=settings_hash(recipe),
                reported_at=datetime.now(UTC),
            )
            foundry.home.lake.write(REPORTED_RECIPES, [row], partition)
    return len(reported)


def changed_since_reported(foundry: FoundryResource) -> list[dict[str, object]]:
    """Per newest recipe, the versions with other settings whose test numbers were reported."""
    reported = [] if foundry.reduced else foundry.rows(REPORTED_RECIPES)
    return [
        {
            "checkpoint": recipe.name,
            "version": recipe.version,
            "reported before": row.version,
            "at": f"{row.reported_at:%Y-%m-%d %H:%M}",
        }
        for recipe in _newest_recipes(foundry)
        for row in reported
        if row.name == recipe.name and row.settings_hash != settings_hash(recipe)
    ]


def settings_hash(recipe: Recipe) -> str:
    """Hash of the settings of a recipe and of its parents, whatever data they are trained on."""
    parent = settings_hash(recipe.parent) if recipe.parent else None
    return content_digest([recipe.settings, recipe.inputs, parent])[:12]


def _newest_recipes(foundry: FoundryResource) -> Iterator[Recipe]:
    names = chain.from_iterable(agent_names(foundry).values())
    return (LINEAGE[name](foundry) for name in names)


def _evaluation_checks(
    declared: Node, names: Callable[[FoundryResource], list[str]]
) -> dg.AssetChecksDefinition:
    """The checks of an asset that writes the partitions `names`."""

    def unmeasured_variants(foundry: FoundryResource, _: object) -> Violations:
        if not _held_out_prompts(foundry):
            return []
        lake = foundry.home.lake
        return [{"variant": name} for name in names(foundry) if not lake.rows(EVALUATIONS, name)]

    def impossible_values(foundry: FoundryResource, _: object) -> Violations:
        rows = foundry.home.lake.read(EVALUATIONS, names(foundry)).to_pylist()
        return [row for row in rows if not METRICS[row["metric"]].allows(row["value"])]

    def training_items(foundry: FoundryResource, _: object) -> Violations:
        lake, prompts = foundry.home.lake, _held_out_prompts(foundry)
        held_out = pc.field("prompt_id").isin(pa.array(sorted(prompts), pa.string()))
        attempts = lake.read(ATTEMPTS, columns=["trajectory_id"], where=held_out)
        # An item is a prompt or an attempt, whose id begins with its trajectory's.
        allowed = prompts | set(attempts["trajectory_id"].to_pylist())
        items = lake.read(EVALUATIONS, names(foundry), ["variant", "item_id"]).to_pylist()
        return [row for row in items if row["item_id"].split("/")[0] not in allowed]

    return blocking_checks(
        declared,
        variants_measured=("Every variant has values", unmeasured_variants),
        values_possible=("Values are in the range of their metric", impossible_values),
        held_out_only=("No item belongs to a prompt of split train", training_items),
    )


def _held_out_prompts(foundry: FoundryResource) -> set[str]:
    where = pc.field("split") != "train"
    prompts = foundry.home.lake.read(PROMPTS, columns=["prompt_id"], where=where)
    return set(prompts["prompt_id"].to_pylist())


evaluation_checks = _evaluation_checks(
    EVALUATION, lambda foundry: [each.partition for each in evaluation_variants(foundry)]
)


def _ablation_partitions(foundry: FoundryResource) -> list[str]:
    """None where variants are compared on a benchmark, whose tables have their own checks."""
    if foundry.settings.evaluation.ablation.benchmark:
        return []
    return [each.partition for each in ablation_variants(foundry)]


ablation_checks = _evaluation_checks(ABLATION, _ablation_partitions)


@dg.asset_check(
    asset=evaluation,
    name="test_items_unseen",
    description="No recipe has other settings than one whose test numbers were reported before",
)
def test_items_unseen(foundry: FoundryResource) -> dg.AssetCheckResult:
    """A warning: whoever saw test numbers and then changed settings may have chosen by them."""
    changes = changed_since_reported(foundry)
    hint = "choose settings by the dev benchmark, and say so where these test numbers are reported"
    return dg.AssetCheckResult(
        passed=not changes,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"settings changed after test numbers were seen: {hint}" if changes else None,
        metadata={"changes": table_metadata(changes)},
    )
