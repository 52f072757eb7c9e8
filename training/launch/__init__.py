"""How assets start trainers: one message contract, a local process or a Ray job underneath."""

from typing import TYPE_CHECKING, Any

from .driver import Driver, open_driver
from .failures import TrainingFailed, why_it_ended
from .jobs import TrainerJob, TrainingOutcome, TrainingProgress
from .settings import LauncherSettings

if TYPE_CHECKING:
    from .launcher import Launcher, launcher_of

_LAZY = ("Launcher", "launcher_of")  # they import Dagster, which drivers do without

__all__ = [
    "Driver",
    "Launcher",
    "LauncherSettings",
    "TrainerJob",
    "TrainingFailed",
    "TrainingOutcome",
    "TrainingProgress",
    "launcher_of",
    "open_driver",
    "why_it_ended",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from . import launcher

        return getattr(launcher, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
