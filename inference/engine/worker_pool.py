"""Work on the prompts of a shard: so many at once, the bad ones set aside, the rest finished."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from schemas import BadImageError, FoundryError
from schemas.trajectories import QuarantineRow

from ..roles import BackendError
from .progress import Progress
from .retry import summarize_error

_REASONS_SHOWN = 3


class WorkResult(Protocol):
    """What work on one prompt came to."""

    @property
    def quarantine(self) -> QuarantineRow | None:
        """Why the prompt was set aside, if it was."""


Item = TypeVar("Item")
Result = TypeVar("Result", bound=WorkResult)


class WorkerPool:
    """Workers on one shard.

    Args:
        workers: prompts worked on at once.
        failure_share: share of set-aside prompts above which the shard is given up, at once:
            calls that can no longer be of use are not made. What is finished stays journaled.
    """

    def __init__(self, shard: str, workers: int, failure_share: float, progress: Progress) -> None:
        self._shard, self._workers, self._share = shard, workers, failure_share
        self._progress = progress
        self._done, self._total = 0, 0
        self._aside: list[QuarantineRow] = []
        self._stop: BackendError | None = None

    async def each(
        self,
        items: Sequence[Item],
        work: Callable[[Item], Awaitable[Result]],
        size: Callable[[Item], int] = lambda item: 1,
    ) -> list[Result]:
        """Results in the order of `items`; the longest work begins first, for a short tail.

        Raises:
            FoundryError: too many prompts were set aside, or the lake cannot be written.
            BackendError: a backend takes no more calls; those under way were finished.
        """
        self._total = len(items)
        results: dict[int, Result] = {}
        queue = iter(sorted(enumerate(items), key=lambda entry: -size(entry[1])))
        self._tell()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._workers, len(items))):
                    group.create_task(self._worker(queue, work, results))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        if self._stop:
            raise self._stop
        return [results[number] for number in range(len(items))]

    async def _worker(
        self,
        queue: Iterator[tuple[int, Item]],
        work: Callable[[Item], Awaitable[Result]],
        results: dict[int, Result],
    ) -> None:
        for number, item in queue:
            try:
                results[number] = await work(item)
            except BackendError as error:  # the others will meet it too, each in its own time
                self._stop = error
            if self._stop:
                return
            self._done += 1
            self._note(results[number].quarantine)
            self._tell()

    def _note(self, quarantine: QuarantineRow | None) -> None:
        if quarantine is None:
            return
        self._aside.append(quarantine)
        if len(self._aside) > self._share * self._total:
            raise FoundryError(self._complaint())

    def _tell(self) -> None:
        note = f"{len(self._aside)} set aside" if self._aside else ""
        self._progress.update(self._done, self._total, note)

    def _complaint(self) -> str:
        share = len(self._aside) / self._total
        reasons = "; ".join(
            f"{row.prompt_id}: {row.reason}" for row in self._aside[:_REASONS_SHOWN]
        )
        return (
            f"{self._aside[0].stage} of {self._shard}: {len(self._aside)} of {self._total} prompts "
            f"set aside ({share:.0%}, failure_share allows {self._share:.0%}): {reasons}. "
            "Finished calls are kept: remove the cause and run again"
        )


async def quarantine_reason(work: Awaitable[None]) -> str | None:
    """Do one prompt's work; None, or in one line why the prompt must be set aside.

    Raises:
        FoundryError: the lake cannot be written, which is not the prompt's fault.
    """
    try:
        await work
    except BadImageError as error:
        return summarize_error(error)
    except FoundryError:
        raise
    except Exception as error:  # a bug met by one prompt must not cost the others theirs
        return summarize_error(error)
    return None


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
