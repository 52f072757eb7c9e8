"""`interleave run`: bring the lineage up to date in this process.

Every stage (`stages.py`) is a Dagster run in the instance that the UI shows, and every shard one of
its own. Nodes that are up to date are reused.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing.util import Finalize
from threading import Thread

import dagster as dg
import duckdb

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import NODES, Node
from assets.core.progress import progress_factory, reporting_to
from assets.curation.targets import read_growth, targets_of
from assets.prompts.assets import check_shard_size, load_packs, register_shards, shard_names
from assets.prompts.pack_loader import load_pack
from inference.calls.forecast import MIN_SHARDS
from inference.calls.progress import NullProgress
from schemas import FoundryError, StorageError
from warehouse.lake import Listings
from warehouse.verify import find_damage, table_checks

from .asset_definitions import ASSETS, CHECKS
from .failed_partitions import FailedPartitions
from .instance import NO_RETRIES, RUNNER, RUNNER_TAG, TRAINING_POOL, open_instance, widened_pool
from .retraining import record_rows
from .shard_progress import ShardProgress
from .stages import (
    Stages,
    is_up_to_date,
    select_nodes,
    stages_of,
    up_to_date_partitions,
    upstream_of,
)
from .workers import RelayedProgress, worker_number, worker_processes

_THREADS = 4  # that read tables to find damage
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class LineageResult:
    """What a run of the lineage did: labels such as `steps` or `plans[sketchbook-0000]`."""

    materialized: list[str]
    reused: list[str]


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
    stage = _Stage(foundry, instance, announce, force, {} if listings is None else listings)
    if stages.agents:
        _prepare_environments(foundry)
    results = [stage.run(stages.bank)]
    if stages.shards:
        names = sorted(instance.get_dynamic_partitions(str(SHARDS.name)))
        results.append(_run_partitions(stage, stages.shards, names, jobs))
        if results[-1].materialized:
            after_shards()
        results += _grow(stage, stages, targets, shards, jobs)
    results += [stage.run(stages.aggregates), stage.run(stages.base)]
    if stages.agents:
        record_rows(foundry)
    results += [_train(stage, stages.agents), stage.run(stages.evaluation)]
    results += _run_own_partitions(stage, stages.generations, jobs)
    return _merged(results)


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
    return _merged(_run_own_partitions(_Stage(foundry, instance, announce, force), nodes, jobs=1))


def materialize_again(
    foundry: FoundryResource, instance: dg.DagsterInstance, node: Node, partition: str | None
) -> None:
    """Materialize a node, or a partition of it, though it is up to date.

    Raises:
        FoundryError: a failed blocking check, or an asset's own failure.
    """
    _Stage(foundry, instance, str, force=True).materialize([node], partition)


def _run_own_partitions(stage: "_Stage", nodes: Sequence[Node], jobs: int) -> list[LineageResult]:
    results = []
    for node in nodes:
        names = node.partitions.register(stage.foundry, stage.instance) if node.partitions else []
        results.append(_run_partitions(stage, [node], names, jobs))
    return results


def _selected_targets(foundry: FoundryResource, stages: Stages) -> list[str]:
    """Sets with targets that are made together with the shards that they come from."""
    names = [node.name for node in stages.aggregates] if stages.shards else []
    return [name for name in names if name in targets_of(foundry)]


def _grow(
    stage: "_Stage", stages: Stages, targets: Sequence[str], most: int, jobs: int
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
        results.append(_run_partitions(stage, stages.shards, new, jobs))
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
    rl = settings.critic_rl
    needed: tuple[tuple[Purpose, int, Extra | None], ...] = (
        ("sft", sft, None),
        ("rl", rl.gpus, rl.environment_extra),
    )

    def prepare() -> None:
        with suppress(FoundryError):
            for purpose, gpus, extra in needed:
                ensure_environment(purpose, "gpu" if gpus else "cpu", lambda _: None, extra)

    Thread(target=prepare, name="environments", daemon=True).start()


def _run_partitions(
    stage: "_Stage", nodes: list[Node], partitions: list[str], jobs: int
) -> LineageResult:
    """The stale partitions one after the other, or `jobs` at a time where there are several.

    FoundryError: some failed; the others are materialized.
    """
    stale = stage.stale_partitions(nodes, partitions)
    reused = [
        _label(node, name) for name in partitions for node in nodes if node not in stale[name]
    ]
    work = [(changed, name) for name, changed in stale.items() if changed]
    workers = min(jobs, len(work), stage.foundry.settings.most_processes or jobs)
    progress = ShardProgress(stage.foundry, nodes, len(work))
    failed = FailedPartitions(stage.announce)
    if workers < 2 or stage.in_this_process_only:
        for changed, name in work:
            with failed.noted(name):
                stage.materialize(changed, name)
                progress.finish(name)
    else:
        stage.announce(f"Materializing {len(work)} partitions, {workers} at a time")
        with worker_processes(workers, lambda _: NullProgress()) as pool:
            running = {
                name: pool.submit(stage.in_worker(changed, workers), name) for changed, name in work
            }
            try:
                for name, future in running.items():
                    with failed.noted(name):
                        future.result()
                        stage.announce(f"{name} done")
                        progress.finish(name)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    failed.check()
    materialized = [_label(node, name) for changed, name in work for node in changed]
    return LineageResult(materialized, reused)


def _train(stage: "_Stage", agents: list[list[Node]]) -> LineageResult:
    """Planner and critic one after the other, or side by side where the profile says so."""
    stale = [nodes for nodes in agents if stage.stale(nodes)]
    one_process = len(stale) < 2 or stage.in_this_process_only
    if one_process or not stage.foundry.training.side_by_side:
        return _merged([stage.run(nodes) for nodes in agents])
    names = " and ".join(", ".join(node.name for node in nodes) for nodes in stale)
    stage.announce(f"Training {names} side by side")
    with (
        widened_pool(stage.instance, TRAINING_POOL, len(agents)),
        worker_processes(len(agents), progress_factory()) as pool,
    ):
        running = [pool.submit(stage.in_worker(nodes), None) for nodes in agents]
        for future in as_completed(running):
            if error := future.exception():
                stage.announce(f"{error}; the other training continues")
    return _merged([future.result() for future in running])


def _merged(results: Sequence[LineageResult]) -> LineageResult:
    """Each label once: a set that grows is looked at several times."""
    materialized = dict.fromkeys(label for result in results for label in result.materialized)
    reused = dict.fromkeys(label for result in results for label in result.reused)
    return LineageResult([*materialized], [label for label in reused if label not in materialized])


def _run_in_worker(
    fields: tuple[str, str, str, str, int], names: list[str], force: bool, partition: str | None
) -> LineageResult:
    foundry, instance = _opened_in_worker(*fields)
    with reporting_to(RelayedProgress):
        nodes = select_nodes(names, foundry.settings)
        stage = _Stage(foundry, instance, str, force)
        if partition is None:
            return stage.run(nodes)
        stage.materialize(nodes, partition)
        return LineageResult([_label(node, partition) for node in nodes], [])


@cache
def _opened_in_worker(
    profile: str, root: str, size: str, sections: str, processes: int
) -> tuple[FoundryResource, dg.DagsterInstance]:
    """Opened once in a worker process, for all of its partitions."""
    foundry = FoundryResource(
        profile=profile,
        root=root,
        size=size,
        sections=sections,
        processes=processes,
        process=worker_number(),
    )
    stack = ExitStack()
    instance = stack.enter_context(open_instance(foundry.home, foundry.settings.cluster))
    Finalize(stack, stack.close, exitpriority=0)  # processes of a pool do not run `atexit`
    return foundry, instance


@dataclass(frozen=True)
class _Stage:
    """Materializes what is stale among some nodes, in one Dagster run."""

    foundry: FoundryResource
    instance: dg.DagsterInstance
    announce: Callable[[str], object]
    force: bool
    listings: Listings = field(default_factory=dict)  # until something is materialized

    @property
    def in_this_process_only(self) -> bool:
        """A memory:// lake exists in one process."""
        return self.foundry.root.startswith("memory:")

    def in_worker(
        self, nodes: Sequence[Node], processes: int = 1
    ) -> Callable[[str | None], LineageResult]:
        """`run`, or `materialize` of a partition, for a worker process.

        Args:
            processes: that share the profile's limits.
        """
        self.listings.clear()
        foundry = self.foundry
        named = (foundry.profile, foundry.root, foundry.chosen_size, foundry.sections)
        fields = (*named, processes)
        return partial(_run_in_worker, fields, [node.name for node in nodes], self.force)

    def run(self, nodes: Sequence[Node]) -> LineageResult:
        """Materialize the stale ones of unpartitioned nodes."""
        stale = self.stale(nodes)
        if stale:
            self.materialize(stale)
        return LineageResult(
            [node.name for node in stale], [node.name for node in nodes if node not in stale]
        )

    def stale(self, nodes: Sequence[Node]) -> list[Node]:
        """Unpartitioned nodes that changed, and those downstream of one that did."""
        stale: list[Node] = []
        with self.foundry.home.lake.listed_in(self.listings):
            for node in nodes:
                follows = self._follows(node, stale)
                if follows or not is_up_to_date(node, self.foundry, self.instance):
                    stale.append(node)
        return stale

    def stale_partitions(
        self, nodes: Sequence[Node], partitions: Sequence[str]
    ) -> dict[str, list[Node]]:
        """The nodes that are stale in each partition, as `stale` says it of unpartitioned ones."""
        stale: dict[str, list[Node]] = {name: [] for name in partitions}
        with self.foundry.home.lake.listed_in(self.listings):
            for node in nodes:
                current = up_to_date_partitions(node, self.foundry, self.instance, partitions)
                for name, changed in stale.items():
                    if self._follows(node, changed) or name not in current:
                        changed.append(node)
        return stale

    def _follows(self, node: Node, stale: Sequence[Node]) -> bool:
        return self.force or any(upstream.name in node.deps for upstream in stale)

    def materialize(self, nodes: Sequence[Node], partition: str | None = None) -> None:
        """Materialize nodes, stale or not, in one Dagster run.

        Raises:
            FoundryError: a failed blocking check, or an asset's own failure.
        """
        self.listings.clear()
        suffix = f" of {partition}" if partition else ""
        self.announce(f"Materializing {', '.join(node.name for node in nodes)}{suffix}")
        try:
            result = dg.materialize(
                [*ASSETS, *CHECKS],
                selection=[node.name for node in nodes],
                partition_key=partition,
                instance=self.instance,
                resources={"foundry": self.foundry},
                run_config=QUIET,
                tags={RUNNER_TAG: RUNNER, **NO_RETRIES},
            )
        except dg.DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        except dg.DagsterError as error:
            # Dagster exports no class for a failed blocking check, which is no bug.
            if type(error).__name__ != "DagsterAssetCheckFailedError":
                raise
            message = " ".join(str(error).split())
            raise FoundryError(f"{message} (`interleave ui` shows the rows)") from error
        except (duckdb.Error, UnicodeDecodeError) as error:  # DuckDB's messages quote the file
            if damage := self._damage_behind(nodes):
                raise damage from error
            raise
        if not result.success:
            raise FoundryError(f"run {result.run_id} failed; `interleave ui` shows why")

    def _damage_behind(self, nodes: Sequence[Node]) -> StorageError | None:
        """The damaged file of a table that nodes read, which DuckDB may not name."""
        read = {name for node in nodes for name in (node.name, *node.deps)}
        tables = {table for name in read for table in NODES[name].tables}
        checks = table_checks(self.foundry.home, tables)
        found = next(find_damage(checks, _THREADS), None)
        return StorageError(str(found)) if found else None


def _label(node: Node, partition: str | None) -> str:
    return f"{node.name}[{partition}]" if partition else node.name
