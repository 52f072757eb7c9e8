"""Where a server and its supervisor run: this machine, or what overrides it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from schemas import FoundryError
from warehouse import file_lock

from ..environments import gpus
from .gpus import claimed_gpus, is_wanted, visible_devices
from .settings import ServerSpec

# A module, run as a process with the server's folder as its argument.
SUPERVISOR = "inference.servers.supervisor"
LOG = "supervisor.log"
# Variables of a training, or of a run of Dagster, which a server outlives.
_NOT_INHERITED = ("INTERLEAVE_TRAIN", "DAGSTER_PIPES_", "RAY_")


class Held(Protocol):
    """A lock that is held."""

    def release(self) -> None: ...


class Locks(Protocol):
    """Locks between the processes of a machine, or of several: those of `file_lock`."""

    def try_lock(self, path: Path, shared: bool = False) -> Held | None: ...
    def is_locked(self, path: Path) -> bool: ...
    def is_free(self, path: Path) -> bool: ...


@dataclass
class LocalHost:
    """This machine, whose GPUs all homes claim by their numbers; `RayHost` overrides all of it.

    Users of a server call `start` to `stop`, its supervisor the rest. The methods may block.

    Args:
        folder: below `servers` of the home's local folder.

    Attributes:
        locks: that the supervisor and the server's users see.
        address: on which the server listens.
    """

    folder: Path
    spec: ServerSpec
    locks: ClassVar[Locks] = file_lock
    _starter: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> str:
        """Where the supervisor's output is."""
        return str(self.folder / LOG)

    def start(self) -> None:
        """Start the supervisor, by a process that ends once it is a daemon, nobody's child; where
        one runs already, the new one ends."""
        kept = {n: v for n, v in os.environ.items() if not n.startswith(_NOT_INHERITED)}
        with (self.folder / LOG).open("ab") as log:
            self._starter = subprocess.Popen(
                [sys.executable, "-m", SUPERVISOR, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept,
                start_new_session=True,
            )

    def is_starting(self) -> bool:
        """Whether one was started that has not ended, and may not have its lock yet."""
        return self._starter is not None and self._starter.poll() is None

    def is_queued(self) -> bool:
        """Whether it waits for GPUs, and is no process yet."""
        return False

    def stop(self, process: int | None) -> None:
        """Have the supervisor end the server; does not wait."""
        with suppress(ProcessLookupError):  # it has just ended
            if process:
                os.kill(process, signal.SIGTERM)

    def enter(self) -> None:
        """In the background and nobody's child: the process that started this one may be a
        training, whose end takes all its children with it. Locks go with the copy that stays."""
        if os.fork():
            os._exit(0)

    @property
    def address(self) -> str:
        return "127.0.0.1"

    @property
    def variables(self) -> Mapping[str, str]:
        """What tells programs which GPUs are theirs."""
        return {"CUDA_VISIBLE_DEVICES": visible_devices(self.spec.settings.gpus)}

    def claimed(
        self, holder: str, waiting: Callable[[str], object]
    ) -> AbstractContextManager[object]:
        """Hold the server's GPUs, see `claimed_gpus`; FoundryError: there are fewer."""
        settings = self.spec.settings
        if missing := [gpu for gpu in settings.gpus if gpu >= gpus()]:
            raise FoundryError(
                f"this machine has {gpus()} GPUs, and it is to take GPU {missing[0]}: change "
                f"`servers.{self.spec.name}.gpus`"
            )
        return claimed_gpus(settings.gpus, settings.memory, holder, waiting)

    def is_wanted(self) -> bool:
        """Whether somebody waits for GPUs that it has."""
        return is_wanted(self.spec.settings.gpus)
