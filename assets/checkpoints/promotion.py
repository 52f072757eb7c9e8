"""Whether a new checkpoint may take the place of the one in use: it must not be surely worse.

Both systems, the newest planner and critic and the promoted ones, are compared item by item on the
held-out set. A checkpoint is rejected when, for a metric of its role, even the upper end of the
interval of the difference is below zero. An agent that falls short of what the profile asks for at
least (`training.promote_at_least`) stays a candidate, also as the first of its name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from schemas.training import EvaluationRow
from training.registry import CheckpointRegistry

from ..evaluation.bootstrap import Interval, paired_difference

BENCHMARK = "sketchbook-heldout"
CANDIDATE, PROMOTED = "full_rl", "promoted"  # variants
METRICS = {
    "planner_sft_checkpoint": ("plan_valid", "plan_correct", "final_success"),
    "critic_rl_checkpoint": (
        "verdict_accuracy_true",
        "verdict_accuracy_false",
        "step_reward",
        "final_success",
    ),
}
Outcome = Literal["promoted", "kept", "rejected"]
# metric -> item -> value
Values = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Decision:
    """What is to become of a version, and the differences (new minus old) it rests on."""

    name: str
    version: str
    outcome: Outcome
    why: str
    differences: dict[str, Interval] = field(default_factory=dict)


def decide(
    name: str,
    version: str,
    in_use: str | None,
    rejected: bool,
    ours: Values,
    theirs: Values,
    least: Mapping[str, float],
) -> Decision:
    """Whether a version is put in use.

    Args:
        in_use: the promoted version, if there is one.
        rejected: it was rejected or rolled back before, which only a person undoes.
        ours: values of the system that the version is part of.
        theirs: values of the promoted system on the same items; empty where it is the same one.
        least: metric -> the mean that is asked for at least.
    """
    if version == in_use:
        return Decision(name, version, "kept", "in use already")
    if rejected:
        return Decision(name, version, "kept", "rejected before; `interleave promote` overrules")
    if lacking := _shortfalls(METRICS[name], ours, least):
        return Decision(name, version, "kept", f"not good enough yet: {', '.join(lacking)}")
    if in_use is None:
        return Decision(name, version, "promoted", "the first of its name")
    gaps = differences(METRICS[name], ours, theirs)
    worse = [f"{metric} {gap}" for metric, gap in gaps.items() if gap.high < 0]
    if worse:
        why = f"worse than {in_use}: {', '.join(worse)}"
        return Decision(name, version, "rejected", why, gaps)
    if not gaps:
        return Decision(name, version, "kept", f"nothing to compare it with {in_use} by")
    return Decision(name, version, "promoted", f"not worse than {in_use}", gaps)


def _shortfalls(metrics: Sequence[str], ours: Values, least: Mapping[str, float]) -> list[str]:
    """What is below what is asked for, in words."""
    means = {metric: fmean(ours[metric].values()) for metric in metrics if ours.get(metric)}
    return [
        f"{metric} {mean:.2f}, at least {least[metric]:g} is asked for"
        for metric, mean in means.items()
        if mean < least.get(metric, 0.0)
    ]


def differences(metrics: Sequence[str], ours: Values, theirs: Values) -> dict[str, Interval]:
    """Mean difference per metric over the items that both systems have a value of."""
    return {
        metric: paired_difference(ours[metric], theirs[metric])
        for metric in metrics
        if ours.get(metric, {}).keys() & theirs.get(metric, {}).keys()
    }


def values_of(
    rows: Sequence[EvaluationRow], variant: str, checkpoint: str
) -> dict[str, dict[str, float]]:
    """A variant's values on the held-out set, as far as they are those of a `name@version`."""
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        played = row.planner.endswith(checkpoint) or row.critic.endswith(checkpoint)
        if played and (row.benchmark, row.variant) == (BENCHMARK, variant):
            values.setdefault(row.metric, {})[row.item_id] = row.value
    return values


def carry_out(registry: CheckpointRegistry, decision: Decision) -> None:
    """Write a decision into the registry."""
    if decision.outcome == "promoted":
        registry.promote(decision.name, decision.version, decision.why)
    if decision.outcome == "rejected":
        registry.reject(decision.name, decision.version, decision.why)
