"""Progress over the shards of `interleave run`, with a forecast of their end and cost."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from assets.core.foundry import FoundryResource
from assets.core.node import Node
from assets.core.progress import progress_factory
from inference.calls.forecast import MIN_SHARDS, Forecast, Measured, predict_sum
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
        self._started, self._last = datetime.now(UTC), time.monotonic()
        self._done = 0
        self._seconds, self._usd = list[Measured](), list[Measured]()
        self._unpriced = False

    def finish(self, partition: str) -> None:
        """A partition is finished."""
        self._done += 1
        now = time.monotonic()
        elapsed, self._last = now - self._last, now
        self._measure(partition, elapsed)
        self._progress.update(self._done, self._total, self._forecast().text)

    def _measure(self, partition: str, elapsed: float) -> None:
        """Take what it took, unless an earlier run made some of its calls."""
        calls = [
            call
            for node in self._nodes
            if self._lake.exists(MODEL_CALLS, f"{node.name}-{partition}")
            for call in self._lake.read(
                MODEL_CALLS, [f"{node.name}-{partition}"], ["started_at", "cost_usd", "error"]
            ).to_pylist()
        ]
        if any(call["started_at"] < self._started for call in calls):
            return
        self._unpriced |= any(call["cost_usd"] is None and call["error"] is None for call in calls)
        self._seconds.append(Measured(1, elapsed))
        self._usd.append(Measured(1, sum(call["cost_usd"] or 0.0 for call in calls)))

    def _forecast(self) -> Forecast:
        to_come = self._total - self._done
        if not to_come:
            return Forecast()
        usd = None if self._unpriced else predict_sum(self._usd, to_come, MIN_SHARDS)
        return Forecast(predict_sum(self._seconds, to_come, MIN_SHARDS), usd)
