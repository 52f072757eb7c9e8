"""Partitions that failed for good, while the others go on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inference.roles import BackendError
from schemas import FoundryError

_MOST = 10  # more have a common cause


class FailedPartitions:
    """Collects the failures of a stage's partitions.

    Args:
        announce: gets a line for each of them.
    """

    def __init__(self, announce: Callable[[str], object]) -> None:
        self._announce = announce
        self._failed: dict[str, FoundryError] = {}

    @contextmanager
    def noted(self, partition: str) -> Iterator[None]:
        """Around the work on a partition: its failure is noted.

        Raises:
            BackendError: no call of any partition can succeed.
            FoundryError: too many partitions have failed.
        """
        try:
            yield
        except BackendError:
            raise
        except FoundryError as error:
            self._failed[partition] = error
            self._announce(f"{partition} failed, the others go on: {error}")
            if len(self._failed) > _MOST:
                self.check()

    def check(self) -> None:
        """Raise FoundryError if any partition has failed; of a single one, it says why."""
        if len(self._failed) == 1:
            [(partition, error)] = self._failed.items()
            raise FoundryError(f"{partition} failed: {error}") from error
        if self._failed:
            raise FoundryError(
                f"{len(self._failed)} failed: {', '.join(self._failed)}; what the others made is "
                "stored: fix the causes above and run again"
            )
