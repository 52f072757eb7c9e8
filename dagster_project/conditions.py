"""When Dagster's daemon materializes an asset by itself. The UI's automation page shows the
conditions of every asset, and why one was requested or not.

Aggregates follow what they read. Shards that are missing are made, and agents are trained again on
enough new rows, once their sensors are switched on.
"""

import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.core.node import Node
from inference.backends.checkpoint.manifest import AgentRole
from inference.backends.providers.budget import SpendingFile
from schemas.training import BASE_MODEL, CRITIC, PLANNER, RL_PLANNER, SFT_CRITIC

from .instance import UNFINISHED, shards_at_once
from .retraining import decide, record_rows
from .staleness import up_to_date_partitions

Condition = dg.AutomationCondition[Any]
When = dg.AutomationCondition

FIRST_TRAININGS: dict[str, AgentRole] = {PLANNER: "planner", SFT_CRITIC: "critic"}
_CHECKPOINTS = [BASE_MODEL, PLANNER, RL_PLANNER, SFT_CRITIC, CRITIC]
TRAINED = ["rubrics", *_CHECKPOINTS, "evaluation", "promotion"]
MAKE_SHARDS = "make_shards"  # the sensor
_RUNNING = dg.RunsFilter(tags={"dagster/sensor_name": MAKE_SHARDS}, statuses=UNFINISHED)
GROW_CRON = os.environ.get("INTERLEAVE_GROW_CRON", "0 3 * * *")
ANSWER_CRON = os.environ.get("INTERLEAVE_ANSWER_CRON", "0 5 * * *")
RETRAIN_CRON = os.environ.get("INTERLEAVE_RETRAIN_CRON", "0 4 * * *")


def condition_of(node: Node, foundry: FoundryResource) -> Condition | None:
    """None: materialized by hand, by a schedule, or with what it belongs to."""
    if node.sharded:
        return _missing_shards(foundry)
    if node.name in TRAINED and foundry.settings.training:
        return _training(node.name, foundry)
    if node.partitions and node.in_profile(foundry.settings):
        due = _once_per_tick(ANSWER_CRON) & ~When.in_progress() & Outdated(foundry, node)
        return due.with_label("new, changed or failed, once a night")
    return _follow_upstream(node) if node.automatic else None


def _follow_upstream(node: Node) -> Condition:
    """Aggregates follow what they read and, unless that takes calls of models, their settings; they
    wait for every shard of what they read, and for its blocking checks.

    An update of an optional dependency is followed, too, but a missing one holds nothing back.
    """
    missing, unchecked = When.any_deps_missing(), _any_deps_unchecked()
    eager: Condition = When.eager()
    if not node.ledger:
        updated = When.any_deps_updated()
        eager = eager.replace(updated, updated | When.code_version_changed())
    if optional := node.optional_deps:
        eager = eager.replace(missing, missing.ignore(_of(optional)))
        unchecked = unchecked.ignore(_of(optional))
    return (eager & ~unchecked).with_label("upstream complete and checked")


def _missing_shards(foundry: FoundryResource) -> Condition:
    """Shards of which all is there that they are made from, a few at once, and within the budget.
    One that failed is tried again once a night."""
    failed = When.execution_failed() & ~_once_per_tick(GROW_CRON)
    ready = _is_idle() & ~When.any_deps_missing() & ~_any_deps_unchecked()
    due = When.missing() & ready & ~failed & FewAtOnce(foundry)
    return due.with_label("missing, and what it is made from is there")


def _training(name: str, foundry: FoundryResource) -> Condition:
    """Agents are trained again on enough new rows, at most once a night, then evaluated and
    promoted, all in one run. What failed is tried again in the next night."""
    leading = [each for each in TRAINED if each != "rubrics"]  # which come with every training
    requested = When.any_deps_match(When.will_be_requested()).allow(_of(leading))
    night = _once_per_tick(RETRAIN_CRON)
    failed = When.execution_failed() & night
    if name == BASE_MODEL:
        due = When.missing() & ~When.execution_failed() | failed
    elif name == "rubrics":  # of the evaluation that follows
        due = EnoughRows(foundry) & night
    elif name in FIRST_TRAININGS:
        due = EnoughRows(foundry, FIRST_TRAININGS[name]) & night & ~When.any_deps_missing()
    else:
        due = requested | failed
    return (due & _no_training_runs()).with_label("trained on enough new rows")


def _of(names: Sequence[str]) -> dg.AssetSelection:
    return dg.AssetSelection.assets(*names)


def _any_deps_unchecked() -> Any:
    """Whether a blocking check has not passed, of any partition of a dependency. Those that are
    requested now are in the same run, which their checks stop.

    Not `all_deps_blocking_checks_passed`: it asks for one partition whose checks passed, and not
    for those of the same run.
    """
    unchecked = When.any_checks_match(~When.check_passed(), blocking_only=True)
    return When.any_deps_match(~When.will_be_requested() & unchecked)


def _is_idle() -> Condition:
    return ~When.in_progress() & ~When.any_deps_in_progress()


def _no_training_runs() -> Condition:
    """Nothing of what is trained runs, or is about to change: an agent that was requested beside
    the evaluation of another one would not be evaluated itself."""
    idle = (When.asset_matches(dg.AssetKey(name), _is_idle()) for name in TRAINED)
    return reduce(and_, idle).with_label("no training, evaluation or promotion runs")


def _once_per_tick(cron: str) -> Condition:
    return When.cron_tick_passed(cron).since(When.newly_requested())


@dataclass(frozen=True)
class EnoughRows(dg.AutomationCondition[dg.AssetKey]):
    """Whether `training.retrain_after_rows` rows of an agent (None: of any) came or changed since
    its newest checkpoint, and are exported."""

    foundry: FoundryResource
    role: AgentRole | None = None

    @property
    def description(self) -> str:
        return f"Enough new rows for the {self.role or 'planner or the critic'}"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        record_rows(self.foundry)
        roles = [self.role] if self.role else FIRST_TRAININGS.values()
        decisions = {role: decide(self.foundry, role) for role in roles}
        context.log.info("; ".join(f"{role}: {each.why}" for role, each in decisions.items()))
        is_due = any(each.is_due for each in decisions.values())
        found = context.candidate_subset if is_due else context.get_empty_subset()
        return dg.AutomationResult(context, found)


@dataclass(frozen=True)
class FewAtOnce(dg.AutomationCondition[dg.AssetKey]):
    """The first shards, as many as may still begin beside those in progress; none once the budget
    is spent."""

    foundry: FoundryResource

    @property
    def description(self) -> str:
        return "At most as many at once as runs, and within the budget"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        due = sorted(context.candidate_subset.expensively_compute_partition_keys())
        runs = context.asset_graph_view.instance.get_runs_count(_RUNNING)
        free = shards_at_once(self.foundry.settings.cluster) - runs
        if free <= 0 or _is_spent(self.foundry):
            due = []
        return _subset(context, set(due[:free]))


@dataclass(frozen=True)
class Outdated(dg.AutomationCondition[dg.AssetKey]):
    """Partitions that `interleave run` would make: never made, failed, or of other inputs now."""

    foundry: FoundryResource
    node: Node

    @property
    def description(self) -> str:
        return "Not up to date"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        assert self.node.partitions
        due = context.candidate_subset.expensively_compute_partition_keys()
        if not due:
            return dg.AutomationResult(context, context.get_empty_subset())
        names = [name for name in self.node.partitions.names(self.foundry) if name in due]
        instance = context.asset_graph_view.instance
        current = up_to_date_partitions(self.node, self.foundry, instance, names)
        return _subset(context, set(names) - current)


def _subset(context: dg.AutomationContext, partitions: AbstractSet[str]) -> dg.AutomationResult:
    """A result that is true of some partitions of the asset."""
    assert context.partitions_def
    found = context.asset_graph_view.get_subset_from_partition_keys(
        context.key, context.partitions_def, partitions
    )
    return dg.AutomationResult(context, found)


def _is_spent(foundry: FoundryResource) -> bool:
    budget, spending = foundry.settings.budget, SpendingFile.of(foundry.home).read()
    return bool(budget and spending and spending.spent >= budget.usd)
