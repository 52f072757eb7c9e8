"""The asset that puts evaluated checkpoints in use, and the check that stops worse ones."""

from collections.abc import Sequence

import dagster as dg

from schemas.training import EVALUATIONS
from training.registry import CheckpointRegistry

from ..core.foundry import FoundryResource
from ..core.node import node, sample
from . import recipes
from .promotion import CANDIDATE, METRICS, PROMOTED, Decision, carry_out, decide, values_of
from .recipes import Recipe

CHECK = "not_worse_than_promoted"


def _statuses(foundry: FoundryResource) -> list[str | None]:
    """What was decided about every version."""
    rows = CheckpointRegistry(foundry.home).rows()
    return [f"{row.name} {row.version} {row.status}" for row in rows if row.name in METRICS]


PROMOTION = node(
    name="promotion",
    group="checkpoints",
    description="Newly trained planner and critic are put in use if they are good enough, and not "
    "surely worse than those in use.",
    deps=("evaluation", "planner_sft_checkpoint", "critic_rl_checkpoint"),
    sections=("training",),
    kinds=frozenset({"python"}),
    holds=_statuses,
)


@dg.asset(
    **PROMOTION.asset_args(),
    check_specs=[
        dg.AssetCheckSpec(
            CHECK,
            asset=PROMOTION.name,
            blocking=True,
            description="No version is surely worse, on the held-out set, than the one in use",
        )
    ],
)
def promotion(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    registry = CheckpointRegistry(foundry.home)
    newest = (recipes.planner_sft(foundry), recipes.critic_rl(foundry))
    decisions = [_decided(foundry, registry, recipe) for recipe in newest]
    for decision in decisions:
        carry_out(registry, decision)
        context.log.info(f"{decision.name} {decision.version}: {decision.outcome}, {decision.why}")
    metadata = {"decisions": sample([_shown(decision) for decision in decisions])}
    described = PROMOTION.describe(context, foundry, {}, metadata)
    return described._replace(check_results=[_check(decisions)])


def _decided(foundry: FoundryResource, registry: CheckpointRegistry, recipe: Recipe) -> Decision:
    rows, name = foundry.rows(EVALUATIONS), recipe.name
    in_use = registry.promoted(name)
    return decide(
        name,
        recipe.version,
        in_use.version if in_use else None,
        registry.find(name, recipe.version).status == "rejected",
        values_of(rows, CANDIDATE, f"{name}@{recipe.version}"),
        values_of(rows, PROMOTED, f"{name}@{in_use.version}") if in_use else {},
        foundry.training.promote_at_least,
    )


def _shown(decision: Decision) -> dict[str, str]:
    gaps = ", ".join(f"{metric} {gap}" for metric, gap in decision.differences.items())
    facts = {"checkpoint": decision.name, "version": decision.version}
    return {**facts, "outcome": decision.outcome, "why": decision.why, "differences": gaps or "-"}


def _check(decisions: Sequence[Decision]) -> dg.AssetCheckResult:
    worse = [d for d in decisions if d.outcome == "rejected"]
    return dg.AssetCheckResult(
        passed=not worse,
        check_name=CHECK,
        metadata={"rejected": sample([_shown(decision) for decision in worse])} if worse else {},
        description="; ".join(f"{d.name} {d.version} is {d.why}" for d in worse) or None,
    )
