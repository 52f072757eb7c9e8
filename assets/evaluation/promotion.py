"""Promotion: whether newly trained checkpoints replace those in use.

What serves is a system of planner and critic, and what was evaluated is what is promoted: the
newest two together, or one of them with the promoted other. Systems are compared item by item on
the pack's development items, metric by metric with the best system ever promoted (`systems.py`);
the intervals are clustered by request. A system is

- accepted if every difference is shown to be above minus the metric's `training.promotion_margin`
  (a one-sided non-inferiority test: the lower end of its interval), and no mean is below
  `training.promote_at_least`;
- worse if a difference is shown to be below it (the upper end);
- undecided otherwise, where a value is missing, or where it would be accepted but for a new agent
  whose reinforcement gained nothing: the supervised one is a candidate, too.

Bonferroni's correction over the metrics, not Holm's: all intervals that are shown then hold at
once, and none depends on the order of the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

import dagster as dg

from inference.backends.checkpoint.manifest import AgentRole, is_agent_of
from inference.backends.checkpoint.promotions import AGENT_NAMES, NAMES_BY_ROLE
from schemas.training import CRITIC, EVALUATIONS, PLANNER, RL_PLANNER, SFT_CRITIC, EvaluationRow
from training.registry import CheckpointRegistry
from training.settings import PromotionMargins, TrainingSettings

from ..core.foundry import FoundryResource
from ..core.metadata import table_metadata
from ..core.node import Node
from ..core.statistics import Interval
from .items import pack_name, promotion_benchmark
from .metrics import SUCCESS, Summary
from .settings import EvaluationSettings
from .systems import System, candidate_systems, newest_system, reference_systems, system_in_use
from .variants import NEWEST

METRICS = tuple(PromotionMargins.model_fields)
Decision = Literal["promoted", "kept", "rejected"]


@dataclass(frozen=True)
class MetricComparison:
    """A metric of a system, and its difference from the best promoted one, item by item."""

    metric: str
    best: System
    difference: Interval
    margin: float

    @property
    def is_worse(self) -> bool:
        return self.difference.high < -self.margin

    @property
    def is_within_margin(self) -> bool:
        return self.difference.low >= -self.margin

    def __str__(self) -> str:
        return f"{self.metric} {self.difference:+}, margin {self.margin:g}"


@dataclass(frozen=True)
class Assessment:
    """What evaluation says of a system. `means` by metric, of those that have values."""

    variant: str
    system: System
    outcome: Literal["accepted", "undecided", "worse"]
    why: str
    means: Mapping[str, float]
    comparisons: tuple[MetricComparison, ...] = ()


def assess(
    variant: str,
    system: System,
    values: Summary,
    references: Sequence[System],
    rejected: Sequence[str],
    training: TrainingSettings,
) -> Assessment:
    """Whether a system may be promoted.

    Args:
        values: by system, of this one and of the `references` to compare with.
        rejected: its versions that were rejected or rolled back before.
    """
    means = {
        metric: fmean(own.values())
        for metric in METRICS
        if (own := values.of_metric(system, metric))
    }

    def undecided(why: str, comparisons: tuple[MetricComparison, ...] = ()) -> Assessment:
        return Assessment(variant, system, "undecided", why, means, comparisons)

    if rejected:
        versions = ", ".join(rejected)
        return undecided(f"{versions} was rejected before; `interleave promote` overrules")
    if missing := [metric for metric in METRICS if metric not in means]:
        return undecided(f"not evaluated: no values of {', '.join(missing)}")
    for reference in references:
        if missing := [each for each in METRICS if _lacks_items(values, system, reference, each)]:
            which = f"values of {', '.join(missing)} are missing"
            return undecided(f"cannot be compared with {reference}: {which}")
    comparisons = tuple(
        _compare(values, system, references, metric, training) for metric in METRICS if references
    )
    if worse := [str(each) for each in comparisons if each.is_worse]:
        why = f"worse than the best promoted: {'; '.join(worse)}"
        return Assessment(variant, system, "worse", why, means, comparisons)
    if low := _too_low(means, training.promote_at_least):
        return undecided(f"not good enough yet: {', '.join(low)}", comparisons)
    if unclear := [str(each) for each in comparisons if not each.is_within_margin]:
        return undecided(f"not shown to be within the margin: {'; '.join(unclear)}", comparisons)
    why = "within the margins of the best promoted" if references else "the first of its name"
    return Assessment(variant, system, "accepted", why, means, comparisons)


def _lacks_items(values: Summary, system: System, reference: System, metric: str) -> bool:
    """Whether a reference has no values, or values of items that we have none of."""
    theirs = values.of_metric(reference, metric)
    return not theirs or not theirs.keys() <= values.of_metric(system, metric).keys()


def _compare(
    values: Summary,
    system: System,
    references: Sequence[System],
    metric: str,
    training: TrainingSettings,
) -> MetricComparison:
    """A metric compared with the reference whose mean is the highest."""
    best = max(references, key=lambda each: fmean(values.of_metric(each, metric).values()))
    tail = (1 - values.settings.confidence) / len(METRICS)  # of each one-sided test
    difference = values.difference(system, best, metric, 1 - 2 * tail)
    assert difference is not None  # `assess` knows that they have common items
    margin = getattr(training.promotion_margin, metric)
    return MetricComparison(metric, best, difference, margin)


def _too_low(means: Mapping[str, float], minimum: Mapping[str, float]) -> list[str]:
    """Means that are below what is required, in words."""
    return [
        f"{metric} {mean:.2f}, required is {minimum[metric]:g}"
        for metric, mean in means.items()
        if metric in minimum and mean < minimum[metric]
    ]


def choose(assessments: Iterable[Assessment], newest: System) -> Assessment | None:
    """The system to promote: the newest, else the better one of those that are in part."""
    accepted = [each for each in assessments if each.outcome == "accepted"]
    by_rank = sorted(accepted, key=lambda each: (each.system != newest, -each.means[SUCCESS]))
    return by_rank[0] if by_rank else None


def decide(
    name: str, version: str, assessments: Sequence[Assessment], chosen: Assessment | None
) -> tuple[Decision, str]:
    """What happens to a newest version, and why: rejected if every system with it is worse."""
    own = [each for each in assessments if each.system.versions.get(name) == version]
    if chosen in own:
        return "promoted", chosen.why if chosen else ""
    why = "; ".join(f"{each.variant}: {each.why}" for each in own)
    why = why or "no trained agent of the other role to serve with yet"
    is_worse = bool(own) and all(each.outcome == "worse" for each in own)
    outcome: Decision = "rejected" if is_worse else "kept"
    return outcome, why


def values_by_system(
    rows: Iterable[EvaluationRow],
    benchmark: str,
    variants: Mapping[str, System],
    settings: EvaluationSettings,
) -> Summary:
    """Values of systems on a benchmark, from the rows that were made with their versions."""
    named = (
        (variants[row.variant], row)
        for row in rows
        if row.benchmark == benchmark and row.variant in variants and row.training_seed is None
    )
    return Summary.grouped((each for each in named if _made_by(each[1], each[0])), settings)


def _made_by(row: EvaluationRow, system: System) -> bool:
    return is_agent_of(system.planner, row.planner) and is_agent_of(system.critic, row.critic)


def _statuses(foundry: FoundryResource) -> list[str | None]:
    rows = CheckpointRegistry(foundry.home).rows()
    return [f"{row.name} {row.version} {row.status}" for row in rows if row.name in AGENT_NAMES]


PROMOTION = Node(
    name="promotion",
    group="evaluation",
    description="The newest planner and critic, or one of them, are promoted if the system that "
    "will serve is good enough and within the margins of the best ever promoted.",
    deps=("evaluation", PLANNER, RL_PLANNER, SFT_CRITIC, CRITIC),
    arrows=("evaluation",),
    sections=("training",),
    kinds=frozenset({"python"}),
    output_hashes=_statuses,
)


NOT_WORSE = dg.AssetCheckSpec(
    "not_worse_than_promoted",
    asset=PROMOTION.name,
    blocking=True,
    description="No new version is shown to be worse than the best promoted one, by more than the "
    "margin, in every system with it",
)


@dg.asset(**PROMOTION.asset_args(), check_specs=[NOT_WORSE])
def promotion(context: dg.AssetExecutionContext, foundry: FoundryResource) -> dg.MaterializeResult:
    registry = CheckpointRegistry(foundry.home)
    assessments = assess_candidates(foundry, registry)
    chosen = choose(assessments, newest_system(foundry))
    decisions = _decisions(foundry, registry, assessments, chosen)
    for each in decisions:
        if each["outcome"] == "rejected":
            registry.reject(each["checkpoint"], each["version"], each["why"])
        context.log.info("%(checkpoint)s %(version)s: %(outcome)s, %(why)s", each)
    if chosen:
        registry.promote_system(chosen.system.versions, chosen.why, chosen.means)
    metadata = {
        "decisions": table_metadata(decisions),
        "systems": table_metadata([_system_cells(each) for each in assessments]),
        "comparisons": table_metadata(
            [_cells(each, one) for each in assessments for one in each.comparisons]
        ),
        "in_use": str(system_in_use(registry.home) or "no system of planner and critic"),
    }
    result = PROMOTION.describe(context, foundry, {}, metadata)
    return result._replace(check_results=[_check(decisions)])


def _decisions(
    foundry: FoundryResource,
    registry: CheckpointRegistry,
    assessments: Sequence[Assessment],
    chosen: Assessment | None,
) -> list[dict[str, str]]:
    """What happens to each newest version, and why."""
    decisions = []
    for name, version in _newest_versions(foundry, assessments).items():
        in_use = registry.promoted(name)
        if in_use and in_use.version == version:
            outcome, why = "kept", "in use already"
        elif not registry.is_complete(name, version):
            outcome, why = "kept", "not trained yet"
        else:
            outcome, why = decide(name, version, assessments, chosen)
        decisions.append({"checkpoint": name, "version": version, "outcome": outcome, "why": why})
    return decisions


def _newest_versions(foundry: FoundryResource, assessments: Sequence[Assessment]) -> dict[str, str]:
    """Versions to decide about, by name; of supervised agents where they are candidates."""
    ours = NEWEST.values()
    versions = newest_system(foundry).versions
    for each in assessments:
        versions |= each.system.versions if each.variant in ours else {}
    return versions


def assess_candidates(foundry: FoundryResource, registry: CheckpointRegistry) -> list[Assessment]:
    """What evaluation says of every system that may be promoted."""
    candidates, references = candidate_systems(foundry), reference_systems(foundry)
    benchmark = promotion_benchmark(pack_name(foundry.settings))
    rows = foundry.rows(EVALUATIONS)
    settings = foundry.settings.evaluation
    values = values_by_system(rows, benchmark, candidates | references, settings)
    compared = list(dict.fromkeys(references.values()))
    assessments = [
        assess(variant, system, values, compared, _rejected(registry, system), foundry.training)
        for variant, system in candidates.items()
    ]
    newest = newest_system(foundry)
    for role in NAMES_BY_ROLE:
        if why := _without_gain(role, newest, registry, rows, benchmark, settings):
            held_back = getattr(newest, role)
            assessments = [_held_back(each, held_back, why) for each in assessments]
    return assessments


def _rejected(registry: CheckpointRegistry, system: System) -> list[str]:
    return [
        f"{name} {version}"
        for name, version in system.versions.items()
        if registry.find(name, version).status == "rejected"
    ]


def _held_back(assessment: Assessment, agent: str, why: str) -> Assessment:
    """Not accepted with this agent; one that is worse stays so."""
    system = assessment.system
    if assessment.outcome != "accepted" or agent not in (system.planner, system.critic):
        return assessment
    return replace(assessment, outcome="undecided", why=f"{why}; `interleave promote` overrules")


def _without_gain(
    role: AgentRole,
    newest: System,
    registry: CheckpointRegistry,
    rows: Iterable[EvaluationRow],
    benchmark: str,
    settings: EvaluationSettings,
) -> str:
    """Why the newest reinforced agent of a role may not be promoted; empty: it may.

    With the newest agent of the other role, it has to end more requests well than the supervised
    one that it started from. One that started from a model that was not trained here is compared
    with none, and one that is in use was compared before.
    """
    agent, in_use = getattr(newest, role), system_in_use(registry.home)
    name, _, version = agent.partition("@")
    supervised, *reinforced = NAMES_BY_ROLE[role]
    is_new = in_use is None or getattr(in_use, role) != agent
    if name not in reinforced or not is_new or not registry.is_complete(name, version):
        return ""
    before = (registry.find(name, version).parent or "").replace("/", "@")
    if not before.startswith(f"{supervised}@"):
        return ""
    parent = replace(newest, **{role: before})
    variants = {each.newest_name: each for each in (newest, parent)}
    values = values_by_system(rows, benchmark, variants, settings)
    if not values.of_metric(newest, SUCCESS):
        return ""
    gain = values.difference(newest, parent, SUCCESS)
    if gain is None:
        return f"not compared with {before}, which it started from"
    if gain.mean > 0:
        return ""
    return f"no better than {before}, which it started from: {SUCCESS} {gain:+}"


def _system_cells(assessment: Assessment) -> dict[str, object]:
    system = assessment.system
    return {
        "variant": assessment.variant,
        "planner": system.planner,
        "critic": system.critic,
        "outcome": assessment.outcome,
        "why": assessment.why,
        **{metric: _rounded(assessment.means.get(metric)) for metric in METRICS},
    }


def _rounded(mean: float | None) -> str:
    return "–" if mean is None else f"{mean:.3f}"


def _cells(assessment: Assessment, comparison: MetricComparison) -> dict[str, object]:
    gap = comparison.difference
    result = "within the margin" if comparison.is_within_margin else "not shown"
    return {
        "variant": assessment.variant,
        "metric": comparison.metric,
        "mean": _rounded(assessment.means[comparison.metric]),
        "best promoted": str(comparison.best),
        "difference": f"{gap.mean:+.3f}",
        "interval": f"[{gap.low:+.3f}, {gap.high:+.3f}]",
        "items": gap.count,
        "margin": f"{comparison.margin:g}",
        "result": "worse" if comparison.is_worse else result,
    }


def _check(decisions: Sequence[Mapping[str, str]]) -> dg.AssetCheckResult:
    worse = [each for each in decisions if each["outcome"] == "rejected"]
    return dg.AssetCheckResult(
        passed=not worse,
        check_name=NOT_WORSE.name,
        metadata={"rejected": table_metadata(worse)} if worse else {},
        description="; ".join(f"{d['checkpoint']} {d['version']} is {d['why']}" for d in worse)
        or None,
    )
