"""`interleave run`: bring the lineage up to date in this process, doing nothing twice.

Every stage (`stages.py`) is a real Dagster run in the instance that the UI shows, and every shard
one of its own. A node is left alone when the run that last made it succeeded, its fingerprint
(code, settings, inputs) is still the same, and what it wrote is still there.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from itertools import repeat

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
from .stages import selected, stages_of
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
    jobs: int = 1,
    force: bool = False,
) -> LineageResult:
    """Bring the selected nodes (default: all) up to date for the first `shards` shards.

    Args:
        announce: is told what is about to be materialized.
        jobs: shards told at the same time, each in a process of its own.
        force: materialize also what is up to date; finished model calls are reused all the same.

    Raises:
        FoundryError: an unknown node, a failed blocking check, or an asset's own failure.
    """
    stages = stages_of(selected(select, foundry.settings))
    register_shards(foundry, instance, shards)
    stage = _Stage(foundry, instance, announce, force)
    outcome = stage.run(stages.bank)
    if stages.shards:
        names = sorted(instance.get_dynamic_partitions(str(SHARDS.name)))
        outcome.add(_tell(stage, stages.shards, names, jobs))
    outcome.add(stage.run(stages.aggregates))
    outcome.add(stage.run(stages.base))
    outcome.add(_train(stage, stages.agents))
    outcome.add(stage.run(stages.judging))
    for node in stages.answering:
        outcome.add(_tell(stage, [node], _registered(node, foundry, instance), jobs))
    return outcome


def _registered(node: Node, foundry: FoundryResource, instance: dg.DagsterInstance) -> list[str]:
    return node.partitions.register(foundry, instance) if node.partitions else []


def _tell(stage: "_Stage", nodes: list[Node], shards: list[str], jobs: int) -> LineageResult:
    """The shards one after the other, or several at a time where more than one has work to do."""
    outcome = LineageResult()
    stale = [shard for shard in shards if stage.stale(nodes, shard)]
    if jobs == 1 or len(stale) < 2 or stage.bound:
        for shard in shards:
            outcome.add(stage.run(nodes, shard))
        return outcome
    stage.announce(f"Telling {len(stale)} partitions, {min(jobs, len(stale))} at a time")
    with worker_processes(min(jobs, len(stale)), lambda _: NullProgress()) as pool:
        told = pool.map(_elsewhere, repeat(stage.order(nodes)), shards)
        for shard, done in zip(shards, told, strict=True):
            stage.announce(f"{shard} done")
            outcome.add(done)
    return outcome


def _train(stage: "_Stage", agents: list[list[Node]]) -> LineageResult:
    """Planner and critic one after the other, or side by side where the profile says so."""
    outcome = LineageResult()
    stale = [nodes for nodes in agents if stage.stale(nodes)]
    if len(stale) < 2 or stage.bound or not stage.foundry.training.side_by_side:
        for nodes in agents:
            outcome.add(stage.run(nodes))
        return outcome
    lines = (", ".join(node.name for node in nodes) for nodes in stale)
    stage.announce(f"Training {' beside '.join(lines)}")
    with (
        widened_pool(stage.instance, TRAINING_POOL, len(agents)),
        worker_processes(len(agents), progress_factory()) as pool,
    ):
        running = [pool.submit(_elsewhere, stage.order(nodes), None) for nodes in agents]
        for ended in as_completed(running):
            if error := ended.exception():
                stage.announce(f"{error}; the other training goes on")
    for ended in running:
        outcome.add(ended.result())
    return outcome


@dataclass(frozen=True)
class _Order:
    """What another process is to bring up to date."""

    profile: str
    root: str
    nodes: list[str]
    force: bool


def _elsewhere(order: _Order, shard: str | None) -> LineageResult:
    """A stage in a process of its own."""
    foundry = FoundryResource(profile=order.profile, root=order.root)
    with (
        open_instance(foundry.home, foundry.settings.cluster) as instance,
        reporting_to(RelayedProgress),
    ):
        nodes = selected(order.nodes, foundry.settings)
        return _Stage(foundry, instance, str, order.force).run(nodes, shard)


@dataclass(frozen=True)
class _Stage:
    """Materializes what is stale among some nodes, in one Dagster run."""

    foundry: FoundryResource
    instance: dg.DagsterInstance
    announce: Callable[[str], object]
    force: bool = False

    @property
    def bound(self) -> bool:
        """To this process, the only one where a memory:// lake lives."""
        return self.foundry.root.startswith("memory:")

    def order(self, nodes: Sequence[Node]) -> _Order:
        """The same for another process."""
        names = [node.name for node in nodes]
        return _Order(self.foundry.profile, self.foundry.root, names, self.force)

    def run(self, nodes: Sequence[Node], shard: str | None = None) -> LineageResult:
        stale = self.stale(nodes, shard)
        if stale:
            where = f" of {shard}" if shard else ""
            self.announce(f"Materializing {', '.join(node.name for node in stale)}{where}")
            self._materialize(stale, shard)
        return LineageResult(
            [_label(node, shard) for node in stale],
            [_label(node, shard) for node in nodes if node not in stale],
        )

    def stale(self, nodes: Sequence[Node], shard: str | None = None) -> list[Node]:
        """Nodes that changed, and those of the stage downstream of one that did."""
        stale: list[Node] = []
        for node in nodes:
            upstream = {n.name for n in stale}
            if (
                self.force
                or upstream & set(node.deps)
                or not is_up_to_date(node, self.foundry, self.instance, shard)
            ):
                stale.append(node)
        return stale

    def _materialize(self, nodes: Sequence[Node], shard: str | None) -> None:
        try:
            result = dg.materialize(
                [*ASSETS, *CHECKS],
                selection=[node.name for node in nodes],
                partition_key=shard,
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
            said = " ".join(str(error).split())
            raise FoundryError(f"{said} (`interleave ui` shows the rows)") from error
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            raise StorageError(f"{first_line(error)}: delete that file and run again") from error
        if not result.success:
            raise FoundryError(f"run {result.run_id} failed; `interleave ui` shows why")


def _label(node: Node, shard: str | None) -> str:
    return f"{node.name}[{shard}]" if shard else node.name
