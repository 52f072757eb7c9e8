"""`interleave run`: bring the lineage up to date in this process, doing nothing twice.

Every stage (`stages.py`) is a real Dagster run in the instance that the UI shows, and every shard
one of its own. A node is left alone when the run that last made it succeeded, its fingerprint
(code, settings, inputs) is still the same, and what it wrote is still there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import dagster as dg
import duckdb

from ..assets.foundry import SHARDS, Foundry
from ..assets.nodes import DATA_VERSION_TAG, FINGERPRINT, Node
from ..assets.progress import reporting_to
from ..assets.prompts.assets import register_shards
from ..inference.progress import Silent
from ..schemas import FoundryError, StorageError
from ..warehouse.storage import first_line
from .definitions import ASSETS, CHECKS
from .instance import RUNNER, RUNNER_TAG, open_instance
from .stages import selected, stages_of
from .workers import worker_processes

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Outcome:
    """What a run of the lineage did: labels such as `steps` or `plans[sketchbook-0000]`."""

    materialized: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        self.materialized += other.materialized
        self.reused += other.reused


def run_lineage(
    foundry: Foundry,
    instance: dg.DagsterInstance,
    shards: int,
    select: Sequence[str] = (),
    announce: Callable[[str], object] = str,
    jobs: int = 1,
    force: bool = False,
) -> Outcome:
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
    outcome.add(stage.run(stages.training))
    return outcome


def _tell(stage: "_Stage", nodes: list[Node], shards: list[str], jobs: int) -> Outcome:
    """The shards one after the other, or several at a time where more than one has work to do."""
    outcome = Outcome()
    stale = [shard for shard in shards if stage.stale(nodes, shard)]
    # A memory:// lake lives in this process alone.
    if jobs == 1 or len(stale) < 2 or stage.foundry.root.startswith("memory:"):
        for shard in shards:
            outcome.add(stage.run(nodes, shard))
        return outcome
    names = [node.name for node in nodes]
    stage.announce(f"Telling {len(stale)} shards, {min(jobs, len(stale))} at a time")
    with worker_processes(min(jobs, len(stale))) as pool:
        profile, root = stage.foundry.profile, stage.foundry.root
        same = (repeat(value) for value in (profile, root, names, stage.force))
        told = pool.map(_tell_shard, *same, shards)
        for shard, done in zip(shards, told, strict=True):
            stage.announce(f"{shard} done")
            outcome.add(done)
    return outcome


def _tell_shard(profile: str, root: str, names: list[str], force: bool, shard: str) -> Outcome:
    """One shard, in a process of its own."""
    foundry = Foundry(profile=profile, root=root)
    with open_instance(foundry.home) as instance, reporting_to(lambda _: Silent()):
        nodes = selected(names, foundry.settings)
        return _Stage(foundry, instance, str, force).run(nodes, shard)


@dataclass(frozen=True)
class _Stage:
    """Materializes what is stale among some nodes, in one Dagster run."""

    foundry: Foundry
    instance: dg.DagsterInstance
    announce: Callable[[str], object]
    force: bool = False

    def run(self, nodes: Sequence[Node], shard: str | None = None) -> Outcome:
        stale = self.stale(nodes, shard)
        if stale:
            where = f" of {shard}" if shard else ""
            self.announce(f"Materializing {', '.join(node.name for node in stale)}{where}")
            self._materialize(stale, shard)
        return Outcome(
            [_label(node, shard) for node in stale],
            [_label(node, shard) for node in nodes if node not in stale],
        )

    def stale(self, nodes: Sequence[Node], shard: str | None) -> list[Node]:
        """Nodes that changed, and those of the stage downstream of one that did."""
        stale: list[Node] = []
        for node in nodes:
            upstream = {n.name for n in stale}
            if self.force or upstream & set(node.deps) or not self._current(node, shard):
                stale.append(node)
        return stale

    def _current(self, node: Node, shard: str | None) -> bool:
        records = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(
                asset_key=dg.AssetKey(node.name), asset_partitions=[shard] if shard else None
            ),
            limit=1,
        ).records
        if not records or not records[0].asset_materialization:
            return False
        tags = records[0].asset_materialization.tags or {}
        if tags.get(FINGERPRINT) != node.fingerprint(self.foundry, self.instance, shard):
            return False
        if tags.get(DATA_VERSION_TAG) != node.data_version(self.foundry, shard):
            return False
        run = self.instance.get_run_by_id(records[0].run_id)
        return run is not None and run.status == dg.DagsterRunStatus.SUCCESS

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
