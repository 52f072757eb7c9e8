"""`interleave run`: bring the lineage up to date in this process.

Every stage (`stages.py`) is a Dagster run in the instance that the UI shows, and every shard one of
its own. Nodes that are up to date are reused.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

import dagster as dg

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import Node
from assets.curation.targets import read_growth, targets_of
from assets.prompts.assets import check_shard_size, load_packs, register_shards, shard_names
from assets.prompts.pack_loader import load_pack
from inference.calls.forecast import MIN_SHARDS
from schemas import FoundryError
from warehouse.lake import Listings

from .retraining import record_rows
from .stage_runner import LineageResult, StageRunner
from .stages import Stages, select_nodes, stages_of, upstream_of


def run_lineage(
    foundry: FoundryResource,
    instance: dg.DagsterInstance,
    shards: int,
    select: Sequence[str] = (),
    announce: Callable[[str], object] = str,
    after_shards: Callable[[], object] = lambda: None,
    jobs: int = 1,
    force: bool = False,
    listings: Listings | None = None,
) -> LineageResult:
    """Bring the selected nodes (default: all) up to date, for the first `shards` shards and all
    that are partitions already.

    Where the profile has `targets` and their sets are among the nodes, it begins with a few shards
    and makes more until they have their sizes.

    Args:
        announce: gets a line before anything is materialized.
        after_shards: called once new trajectories are in the lake, before anything is trained.
        jobs: shards processed at the same time, each in a process of its own; they share the
            profile's limits, and are as many as these allow at most.
        force: materialize also what is up to date; finished model calls are reused all the same.
        listings: gets what the tables' files were when the last stage was looked at.

    Raises:
        FoundryError: an unknown node, a bank with shards of another size, a failed blocking check,
            an asset's own failure, or targets that bank or budget are not enough for.
    """
    stages = stages_of(select_nodes(select, foundry.settings))
    check_shard_size(foundry, load_packs(foundry))
    targets = _selected_targets(foundry, stages)
    # Of a size that nobody has named no more are made than sets ask for.
    few = bool(targets or (foundry.settings.targets and not foundry.size))
    register_shards(foundry, instance, min(shards, MIN_SHARDS) if few else shards)
    stage = StageRunner(foundry, instance, announce, force, {} if listings is None else listings)
    if stages.agents:
        _prepare_environments(foundry)
    results = [stage.run(stages.bank)]
    if stages.shards:
        names = sorted(instance.get_dynamic_partitions(str(SHARDS.name)))
        results.append(stage.run_partitions(stages.shards, names, jobs))
        if results[-1].materialized:
            after_shards()
        results += _grow(stage, stages, targets, shards, jobs)
    results += [stage.run(stages.aggregates), stage.run(stages.base)]
    if stages.agents:
        record_rows(foundry)
    results += [stage.train(stages.agents), stage.run(stages.evaluation)]
    results += _run_own_partitions(stage, stages.generations, jobs)
    return LineageResult.merged(results)


def run_partitioned(
    foundry: FoundryResource,
    instance: dg.DagsterInstance,
    nodes: Sequence[Node],
    announce: Callable[[str], object] = str,
    force: bool = False,
) -> LineageResult:
    """Bring nodes with partitions of their own up to date, and nothing that they depend on.

    Raises:
        FoundryError: a failed blocking check, or an asset's own failure.
    """
    return LineageResult.merged(
        _run_own_partitions(StageRunner(foundry, instance, announce, force), nodes, jobs=1)
    )


def materialize_again(
    foundry: FoundryResource, instance: dg.DagsterInstance, node: Node, partition: str | None
) -> None:
    """Materialize a node, or a partition of it, though it is up to date.

    Raises:
        FoundryError: a failed blocking check, or an asset's own failure.
    """
    StageRunner(foundry, instance, str, force=True).materialize([node], partition)


def _run_own_partitions(
    stage: StageRunner, nodes: Sequence[Node], jobs: int
) -> list[LineageResult]:
    results = []
    for node in nodes:
        names = node.partitions.register(stage.foundry, stage.instance) if node.partitions else []
        results.append(stage.run_partitions([node], names, jobs))
    return results


def _selected_targets(foundry: FoundryResource, stages: Stages) -> list[str]:
    """Sets with targets that are made together with the shards that they come from."""
    names = [node.name for node in stages.aggregates] if stages.shards else []
    return [name for name in names if name in targets_of(foundry)]


def _grow(
    stage: StageRunner, stages: Stages, targets: Sequence[str], most: int, jobs: int
) -> list[LineageResult]:
    """More shards, `most` in all, until the named sets have the sizes of the profile's targets.

    Each batch is no larger than what the sets surely need yet, so that few shards are made in vain.

    Raises:
        FoundryError: at the largest size, once bank or budget are not enough for them.
    """
    foundry, instance = stage.foundry, stage.instance
    needed = {*targets, *upstream_of(targets)}
    sets = [node for node in stages.aggregates if node.name in needed]
    is_largest = most >= max(foundry.settings.sizes.values())
    results = []
    while targets:
        results.append(stage.run(sets))
        growth = read_growth(foundry, targets)
        stage.announce(f"Targets: {growth.text}")
        if is_largest and (problem := growth.problem(most)):
            raise FoundryError(f"stopped before the targets are met: {problem}")
        if growth.is_met or growth.made >= most:
            break
        new = _next_shards(foundry, instance, growth.batch(most))
        instance.add_dynamic_partitions(str(SHARDS.name), new)
        results.append(stage.run(stages.bank))
        results.append(stage.run_partitions(stages.shards, new, jobs))
    return results


def _next_shards(foundry: FoundryResource, instance: dg.DagsterInstance, count: int) -> list[str]:
    """The first `count` shards of the profile's pack that are no partitions yet."""
    known = set(instance.get_dynamic_partitions(str(SHARDS.name)))
    names = shard_names(load_pack(foundry.settings.pack).name, len(known) + count)
    return [name for name in names if name not in known][:count]


def _prepare_environments(foundry: FoundryResource) -> None:
    """Make the trainers' environments while the data is made, if trainings run on this machine; a
    failure is the training's to say."""
    from inference.environments import Extra, Purpose, ensure_environment
    from training.sft.recipe import read_recipe

    settings = foundry.training
    if settings.launcher.kind != "local":
        return
    sft = max(read_recipe(agent).gpus for agent in (settings.planner_sft, settings.critic_sft))
    reinforcements = settings.reinforcements.values()
    needed: list[tuple[Purpose, int, Extra | None]] = [("sft", sft, None)]
    needed += [("rl", rl.gpus, rl.environment_extra) for rl in reinforcements]

    def prepare() -> None:
        with suppress(FoundryError):
            for purpose, gpus, extra in needed:
                ensure_environment(purpose, "gpu" if gpus else "cpu", lambda _: None, extra)

    Thread(target=prepare, name="environments", daemon=True).start()
