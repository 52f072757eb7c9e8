"""What happens to a request beside its story: it gets its players, or it is cut short."""

from dataclasses import dataclass
from typing import Literal

from ..events import Event, TrajectoryFailed, TrajectoryFinished


@dataclass(frozen=True)
class RunStarted:
    """It waits no more. `versions`: role -> backend, model and version."""

    versions: dict[str, str]


@dataclass(frozen=True)
class RunTerminated:
    """The last event of a request that was ended from outside.

    `resumable`: the same request under the same idempotency key goes on from here.
    """

    status: Literal["cancelled", "interrupted"]
    reason: str
    resumable: bool = True


RunEvent = Event | RunStarted | RunTerminated
Ending = TrajectoryFinished | TrajectoryFailed | RunTerminated

CANCELLED = RunTerminated("cancelled", "it was cancelled", resumable=False)
ABANDONED = RunTerminated("cancelled", "nobody waited for it any more")
STOPPED = RunTerminated("interrupted", "the service was stopped before it was finished")


def deadline_exceeded(seconds: float) -> RunTerminated:
    """It took longer than it may."""
    return RunTerminated("interrupted", f"it was not finished in {seconds:g} seconds")


def is_resumable(ending: Ending) -> bool:
    """Whether another try may get further."""
    if isinstance(ending, RunTerminated):
        return ending.resumable
    return isinstance(ending, TrajectoryFailed) and not ending.refused
