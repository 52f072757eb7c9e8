"""A stage of `interleave run`: materializes what is stale among some nodes, in Dagster runs of this
process or of several workers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from multiprocessing.util import Finalize
from typing import Self

import dagster as dg
import duckdb

from assets.core.foundry import FoundryResource
from assets.core.node import NODES, Node
from assets.core.progress import progress_factory, reporting_to
from inference.calls.forecast import MIN_SHARDS, ItemUsage, WorkForecast
from inference.calls.progress import NullProgress
from inference.roles import BackendError
from schemas import FoundryError, StorageError
from schemas.trajectories import MODEL_CALLS
from warehouse.lake import Listings
from warehouse.verify import find_damage, table_checks

from .instance import NO_RETRIES, RUNNER, RUNNER_TAG, TRAINING_POOL, open_instance, widened_pool
from .sources import observe_local
from .stages import CHECKS, select_nodes, versioned_assets
from .staleness import is_up_to_date, up_to_date_partitions
from .workers import RelayedProgress, worker_number, worker_processes

_THREADS = 4  # that read tables to find damage
_MOST_FAILED = 10  # partitions; more have a common cause
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class LineageResult:
    """What a run of the lineage did: labels such as `steps` or `plans[sketchbook-0000]`."""

    materialized: list[str]
    reused: list[str]

    @classmethod
    def merged(cls, results: Sequence[Self]) -> Self:
        """Each label once: a set that grows is looked at several times."""
        materialized = dict.fromkeys(label for result in results for label in result.materialized)
        reused = dict.fromkeys(label for result in results for label in result.reused)
        return cls([*materialized], [label for label in reused if label not in materialized])


@dataclass(frozen=True)
class StageRunner:
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

    @cached_property
    def _assets(self) -> list[dg.AssetsDefinition]:
        return versioned_assets(self.foundry)

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

    def run_partitions(self, nodes: list[Node], partitions: list[str], jobs: int) -> LineageResult:
        """The stale partitions one after the other, or `jobs` at a time where there are several.

        FoundryError: some failed; the others are materialized.
        """
        stale = self.stale_partitions(nodes, partitions)
        reused = [
            node.label(name) for name in partitions for node in nodes if node not in stale[name]
        ]
        work = {name: changed for name, changed in stale.items() if changed}
        progress = ShardProgress(self.foundry, nodes, len(work))
        failed: dict[str, FoundryError] = {}
        with self._started(work, jobs) as started:
            for name, finish in started:
                try:
                    finish()
                    progress.finish(name)
                except BackendError:  # no call of any partition can succeed
                    raise
                except FoundryError as error:
                    failed[name] = error
                    self.announce(f"{name} failed, the others go on: {error}")
                    if len(failed) > _MOST_FAILED:
                        break
        _raise_any(failed)
        materialized = [node.label(name) for name, changed in work.items() for node in changed]
        return LineageResult(materialized, reused)

    @contextmanager
    def _started(
        self, work: Mapping[str, list[Node]], jobs: int
    ) -> Iterator[Iterator[tuple[str, Callable[[], object]]]]:
        """Partitions, each with a function that returns when it is materialized, or raises why it
        is not: in this process it does the work, else it waits for one of several that do."""
        workers = min(jobs, len(work), self.foundry.settings.most_processes or jobs)
        if workers < 2 or self.in_this_process_only:
            yield ((name, partial(self.materialize, work[name], name)) for name in work)
            return
        self.announce(f"Materializing {len(work)} partitions, {workers} at a time")
        with worker_processes(workers, lambda _: NullProgress()) as pool:
            running = {
                name: pool.submit(self.in_worker(changed, workers), name)
                for name, changed in work.items()
            }

            def wait(name: str) -> None:
                running[name].result()
                self.announce(f"{name} done")

            try:
                yield ((name, partial(wait, name)) for name in running)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def train(self, agents: list[list[Node]]) -> LineageResult:
        """Planner and critic one after the other, or side by side where the profile says so."""
        stale = [nodes for nodes in agents if self.stale(nodes)]
        one_process = len(stale) < 2 or self.in_this_process_only
        if one_process or not self.foundry.training.side_by_side:
            return LineageResult.merged([self.run(nodes) for nodes in agents])
        names = " and ".join(", ".join(node.name for node in nodes) for nodes in stale)
        self.announce(f"Training {names} side by side")
        with (
            widened_pool(self.instance, TRAINING_POOL, len(agents)),
            worker_processes(len(agents), progress_factory()) as pool,
        ):
            running = [pool.submit(self.in_worker(nodes), None) for nodes in agents]
            for future in as_completed(running):
                if error := future.exception():
                    self.announce(f"{error}; the other training continues")
        return LineageResult.merged([future.result() for future in running])

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
        observe_local(self.foundry, self.instance, nodes)
        try:
            result = dg.materialize(
                [*self._assets, *CHECKS],
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


def _run_in_worker(
    fields: tuple[str, str, str, str, int], names: list[str], force: bool, partition: str | None
) -> LineageResult:
    foundry, instance = _opened_in_worker(*fields)
    with reporting_to(RelayedProgress):
        nodes = select_nodes(names, foundry.settings)
        stage = StageRunner(foundry, instance, str, force)
        if partition is None:
            return stage.run(nodes)
        stage.materialize(nodes, partition)
        return LineageResult([node.label(partition) for node in nodes], [])


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


def _raise_any(failed: Mapping[str, FoundryError]) -> None:
    """Raise FoundryError if any partition has failed; of a single one, it says why."""
    if len(failed) == 1:
        [(partition, error)] = failed.items()
        raise FoundryError(f"{partition} failed: {error}") from error
    if failed:
        raise FoundryError(
            f"{len(failed)} failed: {', '.join(failed)}; what the others made is stored: fix the "
            "causes above and run again"
        )


class ShardProgress:
    """Reports shards as they are finished.

    The end follows from the times between them, which hold whatever several processes work on at
    the same time, and what a shard takes besides its calls.
    """

    def __init__(self, foundry: FoundryResource, nodes: Sequence[Node], total: int) -> None:
        self._lake, self._nodes, self._total = foundry.home.lake, nodes, total
        label = "shards" if nodes[0].sharded else "partitions"
        self._progress = progress_factory()(label) if total > 1 else NullProgress()
        self._started, self._done = datetime.now(UTC), 0
        self._forecast = WorkForecast([1.0] * total, 1, MIN_SHARDS - 1)
        if total:
            self._forecast.begin(0)

    def finish(self, partition: str) -> None:
        """A partition is finished."""
        self._forecast.end(self._done, self._usage(partition))
        self._done += 1
        if self._done < self._total:
            self._forecast.begin(self._done)
        self._progress.update(self._done, self._total, self._forecast.make().text)

    def _usage(self, partition: str) -> ItemUsage:
        """What its calls cost, unless an earlier run made some of them."""
        names = [f"{node.name}-{partition}" for node in self._nodes]
        known = [name for name in names if self._lake.exists(MODEL_CALLS, name)]
        usage, columns = ItemUsage(), ["started_at", "cost_usd", "error"]
        for call in self._lake.read(MODEL_CALLS, known, columns).to_pylist() if known else ():
            usage.add(call["cost_usd"], call["error"])
            usage.replayed |= call["started_at"] < self._started
        return usage
