"""Promotion: whether a newly trained checkpoint replaces the one in use.

Both systems, the newest planner and critic and the promoted ones, are compared item by item on the
pack's held-out benchmark. A checkpoint is rejected when, for a metric of its role, even the upper
end of the difference's interval is below zero. It stays a candidate when it falls short of
`training.promote_at_least`, or when a metric of its role is missing.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal

import dagster as dg

from schemas.training import EVALUATIONS, EvaluationRow
from training.registry import CheckpointRegistry

from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..core.node import Node
from ..evaluation.items import benchmark_name
from ..evaluation.summary import Interval, paired_difference
from ..evaluation.variants import CRITIC_RL, PLANNER, PROMOTED
from . import recipes
from .recipes import Recipe

CANDIDATE = "full_rl"  # the variant of the newest checkpoints
METRICS = {
    PLANNER: ("plan_valid", "plan_correct", "final_success"),
    CRITIC_RL: ("verdict_accuracy_true", "verdict_accuracy_false", "step_reward", "final_success"),
}
# metric -> item -> value
Values = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class PromotionDecision:
    """What happens to a version, why, and the differences (new minus promoted) by metric."""

    name: str
    version: str
    outcome: Literal["promoted", "kept", "rejected"]
    why: str
    differences: dict[str, Interval] = field(default_factory=dict)


def decide(
    name: str,
    version: str,
    in_use: str | None,
    rejected: bool,
    ours: Values,
    theirs: Values,
    minimum: Mapping[str, float],
) -> PromotionDecision:
    """Whether a version is promoted, kept as it is, or rejected.

    Args:
        in_use: the promoted version, if there is one.
        rejected: it was rejected or rolled back before, which only `interleave promote` undoes.
        ours, theirs: values of the version's system, and of the promoted one (where it differs).
        minimum: metric -> required mean.
    """
    decision, metrics = partial(PromotionDecision, name, version), METRICS[name]
    if version == in_use:
        return decision("kept", "in use already")
    if rejected:
        return decision("kept", "rejected before; `interleave promote` overrules")
    if missing := [metric for metric in metrics if not ours.get(metric)]:
        return decision("kept", f"not evaluated: no values of {', '.join(missing)}")
    means = {metric: fmean(ours[metric].values()) for metric in metrics}
    short = [metric for metric in metrics if means[metric] < minimum.get(metric, 0.0)]
    if notes := [f"{m} {means[m]:.2f}, required is {minimum[m]:g}" for m in short]:
        return decision("kept", f"not good enough yet: {', '.join(notes)}")
    if in_use is None:
        return decision("promoted", "the first of its name")
    gaps = {
        metric: paired_difference(ours[metric], theirs[metric])
        for metric in metrics
        if ours[metric].keys() & theirs.get(metric, {}).keys()
    }
    if worse := [f"{metric} {gap}" for metric, gap in gaps.items() if gap.high < 0]:
        return decision("rejected", f"worse than {in_use}: {', '.join(worse)}", gaps)
    if missing := [metric for metric in metrics if metric not in gaps]:
        why = f"cannot be compared with {in_use}: no values of {', '.join(missing)}"
        return decision("kept", why, gaps)
    return decision("promoted", f"not worse than {in_use}", gaps)


def values_of(
    rows: Sequence[EvaluationRow], benchmark: str, variant: str, checkpoint: str
) -> Values:
    """A variant's values on a benchmark, of rows whose planner or critic is `name@version`."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        is_agent = row.planner.endswith(checkpoint) or row.critic.endswith(checkpoint)
        if is_agent and (row.benchmark, row.variant) == (benchmark, variant):
            values[row.metric][row.item_id] = row.value
    return values


def _statuses(foundry: FoundryResource) -> list[str | None]:
    rows = CheckpointRegistry(foundry.home).rows()
    return [f"{row.name} {row.version} {row.status}" for row in rows if row.name in METRICS]


PROMOTION = Node(
    name="promotion",
    group="checkpoints",
    description="The newest planner and critic are promoted if they are good enough, and not "
    "significantly worse than those in use.",
    deps=("evaluation", "planner_sft_checkpoint", "critic_rl_checkpoint"),
    sections=("training",),
    kinds=frozenset({"python"}),
    output_hashes=_statuses,
)


NOT_WORSE = dg.AssetCheckSpec(
    "not_worse_than_promoted",
    asset=PROMOTION.name,
    blocking=True,
    description="No version is significantly worse than the one in use on held-out items",
)


@dg.asset(**PROMOTION.asset_args(), check_specs=[NOT_WORSE])
def promotion(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    registry = CheckpointRegistry(foundry.home)
    newest = (recipes.planner_sft(foundry), recipes.critic_rl(foundry))
    decisions = [_decide(foundry, registry, recipe) for recipe in newest]
    for made in decisions:
        if made.outcome == "promoted":
            registry.promote(made.name, made.version, made.why)
        if made.outcome == "rejected":
            registry.reject(made.name, made.version, made.why)
        context.log.info(f"{made.name} {made.version}: {made.outcome}, {made.why}")
    metadata = {"decisions": table_metadata([_cells(decision) for decision in decisions])}
    result = PROMOTION.describe(context, foundry, {}, metadata)
    return result._replace(check_results=[_check(decisions)])


def _decide(
    foundry: FoundryResource, registry: CheckpointRegistry, recipe: Recipe
) -> PromotionDecision:
    name, version, promoted = recipe.name, recipe.version, registry.promoted(recipe.name)
    rows, in_use = foundry.rows(EVALUATIONS), promoted.version if promoted else None
    benchmark = benchmark_name(Path(foundry.settings.pack).resolve().name, "heldout")
    rejected = registry.find(name, version).status == "rejected"
    ours = values_of(rows, benchmark, CANDIDATE, f"{name}@{version}")
    theirs = values_of(rows, benchmark, PROMOTED, f"{name}@{in_use}") if in_use else {}
    minimum = foundry.training.promote_at_least
    return decide(name, version, in_use, rejected, ours, theirs, minimum)


def _cells(decision: PromotionDecision) -> dict[str, str]:
    gaps = ", ".join(f"{metric} {gap}" for metric, gap in decision.differences.items())
    return {
        "checkpoint": decision.name,
        "version": decision.version,
        "outcome": decision.outcome,
        "why": decision.why,
        "differences": gaps or "-",
    }


def _check(decisions: Sequence[PromotionDecision]) -> dg.AssetCheckResult:
    worse = [decision for decision in decisions if decision.outcome == "rejected"]
    return dg.AssetCheckResult(
        passed=not worse,
        check_name=NOT_WORSE.name,
        metadata={"rejected": table_metadata([_cells(each) for each in worse])} if worse else {},
        description="; ".join(f"{d.name} {d.version} is {d.why}" for d in worse) or None,
    )
