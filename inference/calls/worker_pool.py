"""Works on the prompts of a shard concurrently; bad ones are quarantined, the rest finished."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from schemas import FoundryError
from schemas.trajectories import QuarantineRow

from ..roles import BackendError
from .forecast import ItemUsage, WorkForecast
from .progress import NullProgress, Progress

_REASONS_IN_MESSAGE = 3

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerPool:
    """`workers` prompts of a shard are worked on at once.

    When a larger share than `failure_share` is quarantined, the shard fails at once, so that no
    useless calls are made. Finished calls stay journaled.
    """

    def __init__(
        self, shard: str, workers: int, failure_share: float, progress: Progress | None
    ) -> None:
        self._shard, self._workers, self._failure_share = shard, workers, failure_share
        self._progress = progress or NullProgress()
        self._done, self._total = 0, 0
        self._quarantined: list[QuarantineRow] = []
        self._backend_error: BackendError | None = None
        self._forecast = WorkForecast((), workers)

    async def map(
        self,
        work: Callable[[Item], Awaitable[Result | QuarantineRow]],
        items: Sequence[Item],
        size: Callable[[Item], int] = lambda item: 1,
        usage: Callable[[Item], ItemUsage] | None = None,
    ) -> tuple[list[Result], list[QuarantineRow]]:
        """Results, and the other items' quarantine, in the order of `items`; largest begin first.

        Args:
            usage: of a finished item; with it, progress has a forecast of end and cost.

        Raises:
            FoundryError: too many prompts were quarantined, or the lake cannot be written.
            BackendError: a backend takes no more calls; those under way were finished.
        """
        self._total = len(items)
        results: dict[int, Result | QuarantineRow] = {}
        ordered_items = sorted(enumerate(items), key=lambda entry: -size(entry[1]))
        sizes = [max(size(item), 1) for _, item in ordered_items]
        self._forecast = WorkForecast(sizes, self._workers)
        queue = iter(ordered_items)
        self._report()
        workers = range(min(self._workers, len(items)))
        await gather_or_cancel(*(self._run_worker(queue, work, results, usage) for _ in workers))
        if self._backend_error:
            raise self._backend_error
        ordered = [results[number] for number in range(len(items))]
        quarantined = [each for each in ordered if isinstance(each, QuarantineRow)]
        return [each for each in ordered if not isinstance(each, QuarantineRow)], quarantined

    async def _run_worker(
        self,
        queue: Iterator[tuple[int, Item]],
        work: Callable[[Item], Awaitable[Result | QuarantineRow]],
        results: dict[int, Result | QuarantineRow],
        usage: Callable[[Item], ItemUsage] | None,
    ) -> None:
        for number, item in queue:
            self._forecast.begin(number)
            try:
                results[number] = result = await work(item)
            except BackendError as error:  # the other workers stop after their current item
                self._backend_error = error
            if self._backend_error:
                return
            self._done += 1
            self._forecast.end(number, usage(item) if usage else ItemUsage(replayed=True))
            if isinstance(result, QuarantineRow):
                self._quarantined.append(result)
                self._check_failure_share()
            self._report()

    def _report(self) -> None:
        quarantined = f"{len(self._quarantined)} quarantined" if self._quarantined else ""
        note = "; ".join(filter(None, (quarantined, self._forecast.forecast().text)))
        self._progress.update(self._done, self._total, note)

    def _check_failure_share(self) -> None:
        rows = self._quarantined
        if len(rows) <= self._failure_share * self._total:
            return
        reasons = "; ".join(f"{row.prompt_id}: {row.reason}" for row in rows[:_REASONS_IN_MESSAGE])
        raise FoundryError(
            f"{rows[0].stage} of {self._shard}: {len(rows)} of {self._total} prompts quarantined "
            f"({len(rows) / self._total:.0%}, failure_share allows {self._failure_share:.0%}): "
            f"{reasons}. Finished calls are stored: fix the cause and run again"
        )


async def gather_or_cancel(*work: Coroutine[Any, Any, Result]) -> list[Result]:
    """The results in order. When one raises, the others are cancelled and awaited."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def finish_when_cancelled(work: Coroutine[Any, Any, Result]) -> Result:
    """Await `work` to its end even when cancelled: a paid answer is stored, a file is whole."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
