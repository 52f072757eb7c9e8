"""What happens to a request beside its story: it gets its players, or it is cut short."""

from dataclasses import dataclass
from typing import Literal

from ..events import Event, Failed, Finished


@dataclass(frozen=True)
class Started:
    """It waits no more. `versions`: role -> backend, model and version."""

    versions: dict[str, str]


@dataclass(frozen=True)
class CutShort:
    """The last event of a request that was ended from outside.

    `resumable`: the same request under the same idempotency key goes on from here.
    """

    status: Literal["cancelled", "interrupted"]
    reason: str
    resumable: bool = True


Happening = Event | Started | CutShort
Ending = Finished | Failed | CutShort

CANCELLED = CutShort("cancelled", "it was cancelled", resumable=False)
ABANDONED = CutShort("cancelled", "nobody waited for it any more")
STOPPED = CutShort("interrupted", "the service was stopped before it was finished")


def late(seconds: float) -> CutShort:
    """It took longer than it may."""
    return CutShort("interrupted", f"it was not finished in {seconds:g} seconds")


def is_resumable(ending: Ending) -> bool:
    """Whether another try may get further."""
    if isinstance(ending, CutShort):
        return ending.resumable
    return isinstance(ending, Failed) and not ending.refused
