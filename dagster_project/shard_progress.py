"""Progress over the shards of `interleave run`, with a forecast of their end and cost."""

from collections.abc import Sequence
from datetime import UTC, datetime

from assets.core.foundry import FoundryResource
from assets.core.node import Node
from assets.core.progress import progress_factory
from inference.calls.forecast import MIN_SHARDS, ItemUsage, WorkForecast
from inference.calls.progress import NullProgress
from schemas.trajectories import MODEL_CALLS


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
