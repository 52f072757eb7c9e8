"""Assets: which of them `interleave run` brings up to date, and in which order."""

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from itertools import chain
from typing import NamedTuple, cast

import dagster as dg

import assets
from assets.core.additions import additions
from assets.core.foundry import FoundryResource
from assets.core.node import NODES, Node, lineage
from assets.core.profile import Profile
from schemas import FoundryError

from .sources import sources_of

# What schedules promise, and when the UI warns that it did not come, or marks it as stale.
_NIGHTLY = dg.FreshnessPolicy.time_window(timedelta(days=7), warn_window=timedelta(days=2))
_WEEKLY = dg.FreshnessPolicy.time_window(timedelta(days=21), warn_window=timedelta(days=8))
FRESHNESS = {
    **dict.fromkeys(("scores", "exports", "generations"), _NIGHTLY),
    "rounds": _WEEKLY,
    "promotion": dg.FreshnessPolicy.time_window(timedelta(days=60), warn_window=timedelta(days=30)),
}


def _assets() -> list[dg.AssetsDefinition]:
    """Every asset below `assets`, with its source file and, if it has one, its freshness policy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        loaded = dg.with_source_code_references(dg.load_assets_from_package_module(assets))
    definitions = cast("list[dg.AssetsDefinition]", loaded)
    return [definition.map_asset_specs(_with_freshness) for definition in definitions]


def _with_freshness(spec: dg.AssetSpec) -> dg.AssetSpec:
    policy = FRESHNESS.get(spec.key.to_user_string())
    return dg.apply_freshness_policy(spec, policy) if policy else spec


def versioned_assets(foundry: FoundryResource) -> list[dg.AssetsDefinition]:
    """The assets, each with its node's code version: Dagster then calls an asset unsynced whose
    settings, models or prompts have changed since it was materialized. What components add, and
    what the profile names elsewhere, is upstream of what reads it."""
    named, added, sources = cache(foundry.without_keys), additions(), sources_of(foundry)

    def with_version(spec: dg.AssetSpec) -> dg.AssetSpec:
        name = spec.key.to_user_string()
        read = [dg.AssetDep(each.asset_key) for each in added if name in each.kind.readers]
        read += [dg.AssetDep(each.key) for each in sources if each.reader == name]
        spec = spec.replace_attributes(deps=[*spec.deps, *read])
        # Settings or a pack that cannot be read are the business of the run that needs them.
        with suppress(FoundryError):
            return spec.replace_attributes(code_version=NODES[name].code_version(named()))
        return spec

    return [definition.map_asset_specs(with_version) for definition in ASSETS]


ASSETS = _assets()
CHECKS = dg.load_asset_checks_from_package_module(assets)


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
    """Names of the nodes that sharded ones depend on, however far up; and of the imports, which
    `targets` count."""
    names: set[str] = {"imports"}
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
    nodes = [node for node in lineage() if node.group == "checkpoints"]
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
