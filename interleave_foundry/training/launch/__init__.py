"""How assets start trainers: one message contract, a local process or a Ray job underneath."""

from .driver import Driver, open_driver
from .failures import TrainingFailed, why_it_ended
from .jobs import TrainerJob, TrainingOutcome, TrainingProgress
from .launcher import Launcher, launcher_of
from .settings import LauncherSettings

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
