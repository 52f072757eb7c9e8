"""Which nodes `interleave run` brings up to date, in which order, and whether one is."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import dagster as dg

from assets.core.foundry import FoundryResource
from assets.core.node import DATA_VERSION_TAG, FINGERPRINT, NODES, Node, lineage
from assets.core.profile import Profile
from schemas import FoundryError

from .materializations import latest_materializations, succeeded_runs


class Stages(NamedTuple):
    """Nodes by when they run, each list in lineage order; a stage reads what earlier ones made."""

    bank: list[Node]
    shards: list[Node]
    aggregates: list[Node]
    base: list[Node]  # and what else trainings read
    agents: list[list[Node]]  # planner's and critic's: no list reads what another one makes
    evaluation: list[Node]
    generations: list[Node]  # users' requests, each node in partitions of its own


def select_nodes(names: Sequence[str], profile: Profile) -> list[Node]:
    """The named nodes; without names, those of the profile that are not optional.

    `+NAME`, as in Dagster's selections: also those of the profile that it depends on.

    Raises:
        FoundryError: there is no such node, or the profile lacks a section that it needs.
    """
    nodes = lineage()
    usual = [node for node in nodes if not node.optional and node.is_enabled(profile)]
    if not names:
        return usual
    known = [node.name for node in nodes]
    named = {name.removeprefix("+") for name in names}
    if unknown := sorted(named - set(known)):
        raise FoundryError(f"no asset named {', '.join(unknown)}; there are: {', '.join(known)}")
    upstream = upstream_of(name[1:] for name in names if name.startswith("+"))
    chosen = [
        node for node in nodes if node.name in named or (node in usual and node.name in upstream)
    ]
    for node in chosen:
        if not node.is_enabled(profile):
            sections = node.missing_sections(profile)
            raise FoundryError(
                f"profile {profile.name} has no section {' and '.join(sections)}, which "
                f"{node.name} needs: add it, or use a profile that has it"
            )
    return chosen


def upstream_of(names: Iterable[str]) -> set[str]:
    """Names of all nodes that these depend on, directly or not."""
    found: set[str] = set()
    queue = list(names)
    while queue:
        new = set(NODES[queue.pop()].deps) - found
        found |= new
        queue += new
    return found


def is_up_to_date(
    node: Node, foundry: FoundryResource, instance: dg.DagsterInstance, partition: str | None = None
) -> bool:
    """Whether the run that last made a node succeeded, its fingerprint (code, settings, inputs) is
    unchanged, and what it wrote is still there."""
    partitions = [partition] if partition else None
    newest = dg.AssetRecordsFilter(asset_key=dg.AssetKey(node.name), asset_partitions=partitions)
    records = instance.fetch_materializations(newest, limit=1).records
    if not records or not records[0].asset_materialization:
        return False
    tags = records[0].asset_materialization.tags or {}
    if tags.get(FINGERPRINT) != node.fingerprint(foundry, instance, partition):
        return False
    if tags.get(DATA_VERSION_TAG) != node.data_version(foundry, partition):
        return False
    run = instance.get_run_by_id(records[0].run_id)
    return run is not None and run.status == dg.DagsterRunStatus.SUCCESS


def up_to_date_partitions(
    node: Node, foundry: FoundryResource, instance: dg.DagsterInstance, partitions: Sequence[str]
) -> set[str]:
    """Those of the partitions of which `is_up_to_date` is true, in a few queries for all."""
    latest = latest_materializations(foundry.home, instance, node.name)
    made = [name for name in partitions if name in latest]
    fingerprints = node.fingerprints(foundry, instance, made)
    versions, succeeded = node.data_versions(foundry, made), succeeded_runs(instance)
    return {
        name
        for name in made
        if latest[name].fingerprint == fingerprints[name]
        and latest[name].data_version == versions[name]
        and latest[name].run_id in succeeded
    }


def stages_of(nodes: Sequence[Node]) -> Stages:
    """The nodes by stage."""
    before = _before_shards()
    after = [node for node in nodes if not node.is_partitioned and node.name not in before]
    aggregates = _aggregates(after)
    first, agents = _checkpoints()
    trained = [node for node in after if node.name in agents]
    # Also what a training reads that is no checkpoint: rubrics, for rewards of plans.
    read = {name for node in trained for name in node.deps} - aggregates - agents
    base = first | read
    return Stages(
        bank=[node for node in nodes if not node.is_partitioned and node.name in before],
        shards=[node for node in nodes if node.sharded],
        aggregates=[node for node in after if node.name in aggregates],
        base=[node for node in after if node.name in base],
        agents=_independent_lists(trained),
        evaluation=[node for node in after if node.name not in aggregates | base | agents],
        generations=[node for node in nodes if node.partitions],
    )


def _before_shards() -> set[str]:
    """Names of the nodes that sharded ones depend on, however far up."""
    names: set[str] = set()
    for node in reversed(lineage()):
        if node.sharded or node.name in names:
            names |= set(node.deps)
    return names


def _aggregates(after: Sequence[Node]) -> set[str]:
    """Names of the automatic nodes, and of those that they depend on."""
    automatic = [node for node in after if node.automatic]
    return {name for node in automatic for name in (node.name, *node.deps)}


def _checkpoints() -> tuple[set[str], set[str]]:
    """Names of the checkpoints that start from none, and of those that start from one."""
    # Promotion, in the same group, trains nothing.
    nodes = [node for node in lineage() if node.group == "checkpoints" and node.pool]
    names = {node.name for node in nodes}
    agents = {node.name for node in nodes if names & set(node.deps)}
    return names - agents, agents


def _independent_lists(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes in lists of which none depends on another, each in lineage order."""
    lists: list[list[Node]] = []
    for node in nodes:
        upstream = [one for one in lists if {n.name for n in one} & set(node.deps)]
        lists = [one for one in lists if one not in upstream]
        lists.append([*chain.from_iterable(upstream), node])
    return lists
