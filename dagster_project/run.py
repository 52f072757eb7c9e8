"""`interleave run`: bring the lineage up to date in this process.

Every stage (`stages.py`) is a Dagster run in the instance that the UI shows, and every shard one of
its own. A node is reused when the run that last made it succeeded, its fingerprint (code, settings,
inputs) is unchanged, and what it wrote is still there.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from itertools import repeat
from threading import Thread

import dagster as dg
import duckdb

from assets.core.foundry import SHARDS, FoundryResource
from assets.core.node import Node
from assets.core.progress import progress_factory, reporting_to
from assets.prompts.assets import register_shards
from inference.engine.progress import NullProgress
from schemas import FoundryError, StorageError
from warehouse.storage import first_line

from .definitions import ASSETS, CHECKS
from .instance import RUNNER, RUNNER_TAG, TRAINING_POOL, open_instance, widened_pool
from .stages import select_nodes, stages_of
from .staleness import is_up_to_date
from .workers import RelayedProgress, worker_processes

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class LineageResult:
    """What a run of the lineage did: labels such as `steps` or `plans[sketchbook-0000]`."""

    materialized: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)

    def add(self, other: "LineageResult") -> None:
        self.materialized += other.materialized
        self.reused += other.reused


def run_lineage(
    foundry: FoundryResource,
    instance: dg.DagsterInstance,
    shards: int,
    select: Sequence[str] = (),
    announce: Callable[[str], object] = str,
    after_shards: Callable[[], object] = lambda: None,
    jobs: int = 1,
    force: bool = False,
) -> LineageResult:
    """Bring the selected nodes (default: all) up to date for the first `shards` shards.

    Args:
        announce: gets a line before anything is materialized.
        after_shards: called once new trajectories are in the lake, before anything is trained.
        jobs: shards processed at the same time, each in a process of its own.
        force: materialize also what is up to date; finished model calls are reused all the same.

    Raises:
        FoundryError: an unknown node, a failed blocking check, or an asset's own failure.
    """
    stages = stages_of(select_nodes(select, foundry.settings))
    register_shards(foundry, instance, shards)
    stage = _Stage(foundry, instance, announce, force)
    if stages.agents:
        _prepare_environments(foundry)
    result = stage.run(stages.bank)
    if stages.shards:
        names = sorted(instance.get_dynamic_partitions(str(SHARDS.name)))
        done = _run_partitions(stage, stages.shards, names, jobs)
        result.add(done)
        if done.materialized:
            after_shards()
    result.add(stage.run(stages.aggregates))
    result.add(stage.run(stages.base))
    result.add(_train(stage, stages.agents))
    result.add(stage.run(stages.evaluation))
    for node in stages.generations:
        names = node.partitions.register(foundry, instance) if node.partitions else []
        result.add(_run_partitions(stage, [node], names, jobs))
    return result


def _prepare_environments(foundry: FoundryResource) -> None:
    """Make the trainers' environments while the data is made; a failure is the training's to say.

    Nothing is done where trainings are launched on other machines.
    """
    from training.environments import Purpose, ensure_environment
    from training.sft.recipe import read_recipe

    settings = foundry.training
    if settings.launcher.kind != "local":
        return
    sft = max(read_recipe(agent).gpus for agent in (settings.planner_sft, settings.critic_sft))
    needed: tuple[tuple[Purpose, int], ...] = (("sft", sft), ("rl", settings.critic_rl.gpus))

    def prepare() -> None:
        for purpose, gpus in needed:
            try:
                ensure_environment(purpose, "gpu" if gpus else "cpu", announce=lambda _: None)
            except FoundryError:
                return

    Thread(target=prepare, name="environments", daemon=True).start()


def _run_partitions(
    stage: "_Stage", nodes: list[Node], partitions: list[str], jobs: int
) -> LineageResult:
    """The partitions one after the other, or `jobs` at a time where several are stale."""
    result = LineageResult()
    stale = [partition for partition in partitions if stage.stale(nodes, partition)]
    if jobs == 1 or len(stale) < 2 or stage.in_this_process_only:
        for partition in partitions:
            result.add(stage.run(nodes, partition))
        return result
    stage.announce(f"Materializing {len(stale)} partitions, {min(jobs, len(stale))} at a time")
    with worker_processes(min(jobs, len(stale)), lambda _: NullProgress()) as pool:
        results = pool.map(_run_in_worker, repeat(stage.order(nodes)), partitions)
        for partition, done in zip(partitions, results, strict=True):
            stage.announce(f"{partition} done")
            result.add(done)
    return result


def _train(stage: "_Stage", agents: list[list[Node]]) -> LineageResult:
    """Planner and critic one after the other, or side by side where the profile says so."""
    result = LineageResult()
    stale = [nodes for nodes in agents if stage.stale(nodes)]
    sequential = not stage.foundry.training.side_by_side if stale else True
    if len(stale) < 2 or stage.in_this_process_only or sequential:
        for nodes in agents:
            result.add(stage.run(nodes))
        return result
    names = " and ".join(", ".join(node.name for node in nodes) for nodes in stale)
    stage.announce(f"Training {names} side by side")
    with (
        widened_pool(stage.instance, TRAINING_POOL, len(agents)),
        worker_processes(len(agents), progress_factory()) as pool,
    ):
        running = [pool.submit(_run_in_worker, stage.order(nodes), None) for nodes in agents]
        for future in as_completed(running):
            if error := future.exception():
                stage.announce(f"{error}; the other training continues")
    for future in running:
        result.add(future.result())
    return result


@dataclass(frozen=True)
class _Order:
    """What a worker process is to bring up to date."""

    foundry: dict[str, str]
    nodes: list[str]
    force: bool


def _run_in_worker(order: _Order, partition: str | None) -> LineageResult:
    """A stage in a worker process."""
    foundry = FoundryResource(**order.foundry)
    with (
        open_instance(foundry.home, foundry.settings.cluster) as instance,
        reporting_to(RelayedProgress),
    ):
        nodes = select_nodes(order.nodes, foundry.settings)
        return _Stage(foundry, instance, str, order.force).run(nodes, partition)


@dataclass(frozen=True)
class _Stage:
    """Materializes what is stale among some nodes, in one Dagster run."""

    foundry: FoundryResource
    instance: dg.DagsterInstance
    announce: Callable[[str], object]
    force: bool = False

    @property
    def in_this_process_only(self) -> bool:
        """A memory:// lake exists in one process."""
        return self.foundry.root.startswith("memory:")

    def order(self, nodes: Sequence[Node]) -> _Order:
        """The same for a worker process."""
        foundry = self.foundry
        fields = {"profile": foundry.profile, "root": foundry.root, "size": foundry.chosen_size}
        return _Order(fields, [node.name for node in nodes], self.force)

    def run(self, nodes: Sequence[Node], partition: str | None = None) -> LineageResult:
        stale = self.stale(nodes, partition)
        if stale:
            suffix = f" of {partition}" if partition else ""
            self.announce(f"Materializing {', '.join(node.name for node in stale)}{suffix}")
            self._materialize(stale, partition)
        return LineageResult(
            [_label(node, partition) for node in stale],
            [_label(node, partition) for node in nodes if node not in stale],
        )

    def stale(self, nodes: Sequence[Node], partition: str | None = None) -> list[Node]:
        """Nodes that changed, and those of the stage downstream of one that did."""
        stale: list[Node] = []
        for node in nodes:
            upstream = {n.name for n in stale}
            if (
                self.force
                or upstream & set(node.deps)
                or not is_up_to_date(node, self.foundry, self.instance, partition)
            ):
                stale.append(node)
        return stale

    def _materialize(self, nodes: Sequence[Node], partition: str | None) -> None:
        try:
            result = dg.materialize(
                [*ASSETS, *CHECKS],
                selection=[node.name for node in nodes],
                partition_key=partition,
                instance=self.instance,
                resources={"foundry": self.foundry},
                run_config=QUIET,
                tags={RUNNER_TAG: RUNNER},
                raise_on_error=True,
            )
        except dg.DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        except dg.DagsterError as error:
            # Dagster exports no class for a failed blocking check, which is no bug.
            if type(error).__name__ != "DagsterAssetCheckFailedError":
                raise
            message = " ".join(str(error).split())
            raise FoundryError(f"{message} (`interleave ui` shows the rows)") from error
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            raise StorageError(f"{first_line(error)}: delete that file and run again") from error
        if not result.success:
            raise FoundryError(f"run {result.run_id} failed; `interleave ui` shows why")


def _label(node: Node, partition: str | None) -> str:
    return f"{node.name}[{partition}]" if partition else node.name
