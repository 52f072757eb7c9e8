"""How assets start trainers: one message contract, a local process or a Ray job underneath."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .jobs import LauncherSettings
    from .launcher import Launcher


def create_launcher(settings: "LauncherSettings") -> "Launcher":
    """The launcher that a profile asks for; each is imported when it is used."""
    from .launcher import LocalLauncher
    from .ray_launcher import RayLauncher

    return LocalLauncher(settings) if settings.kind == "local" else RayLauncher(settings)
