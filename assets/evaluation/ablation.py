"""The ablation of the paper's table 5 as one asset: what each part of the recipe is good for."""

import asyncio
from collections.abc import Iterator

import dagster as dg

from schemas.training import EVALUATIONS
from schemas.trajectories import MODEL_CALLS

from ..checkpoints.recipes import Recipe
from ..checkpoints.training import ensure_checkpoint
from ..core.foundry import FoundryResource, run_async
from ..core.node import node, picture, sample
from ..core.progress import progress_of
from .agents import AgentFactory
from .assets import draws_and_grades
from .extra_recipes import EXTRA, versions
from .paper import order_in_words, side_by_side
from .plots import beside_paper_plot
from .runner import compare, described, store, stored_rows, summaries
from .variants import BASE, CRITIC_RL, CRITIC_SFT, PLANNER, VARIANTS, Variant


def others(foundry: FoundryResource) -> list[Variant]:
    """Variants that `evaluation` does not evaluate already."""
    mine = set(foundry.settings.evaluation.variants)
    return [variant for name, variant in VARIANTS.items() if name not in mine]


def _held(foundry: FoundryResource) -> list[str | None]:
    lake = foundry.home.lake
    return [lake.content_hash(EVALUATIONS, variant.name) for variant in others(foundry)]


ABLATION = node(
    name="ablation",
    group="evaluation",
    description="Every variant of the paper's table 5, trained where it needs training of its own, "
    "beside the paper's numbers. Takes long, so it is made when it is selected.",
    tables=(EVALUATIONS,),
    ledger=(MODEL_CALLS,),
    deps=("evaluation", "exports", BASE, PLANNER, CRITIC_SFT, CRITIC_RL),
    sections=("evaluation", "training", "curation", "loop"),
    pool="gpu_train",
    facts=draws_and_grades,
    holds=_held,
    optional=True,
)


@dg.asset(**ABLATION.asset_args())
def ablation(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    run_async(
        _trained(context, foundry, [EXTRA[name](foundry) for name in _needed(others(foundry))])
    )
    cast = AgentFactory(foundry, versions(foundry))
    compared = compare(foundry, cast, others(foundry), progress_of(context))
    written = store(foundry, compared)
    rows = compared.all_rows + stored_rows(foundry, foundry.settings.evaluation.variants)
    main = summaries(foundry, compared, rows)[0]
    metadata = {
        "table_5": sample(side_by_side(main)),
        "order": dg.MetadataValue.md(order_in_words(main)),
        "plot": picture(beside_paper_plot(main), "The ablation beside the paper's"),
        **described(foundry, compared, rows),
    }
    return ABLATION.describe(context, foundry, written, metadata)


async def _trained(
    context: dg.AssetExecutionContext, foundry: FoundryResource, recipes: list[Recipe]
) -> None:
    """Make the checkpoints; those of different roles side by side where the profile says so."""
    lines: dict[str, list[Recipe]] = {}
    for recipe in recipes:
        line = recipe.role if foundry.training.side_by_side else "all"
        lines.setdefault(line, []).append(recipe)
    await asyncio.gather(*(_one_by_one(context, foundry, line) for line in lines.values()))


async def _one_by_one(
    context: dg.AssetExecutionContext, foundry: FoundryResource, recipes: list[Recipe]
) -> None:
    for recipe in recipes:
        await ensure_checkpoint(context, foundry, recipe)


def _needed(variants: list[Variant]) -> Iterator[str]:
    """Checkpoints that only the ablation needs, in the order of the table."""
    wanted = {reference for variant in variants for reference in (variant.planner, variant.critic)}
    return (name for name in EXTRA if name in wanted)
