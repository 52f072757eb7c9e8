"""How the supervisor of a server is started and stopped: on this machine, or on a Ray cluster."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from warehouse import file_lock

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


class SupervisorHost(Protocol):
    """Where a supervisor runs. The methods may block.

    Attributes:
        locks: that it and its server's users see.
        is_remote: on another machine, which may have died unnoticed.
    """

    locks: ClassVar[Locks]
    is_remote: ClassVar[bool]

    @property
    def log(self) -> str:
        """Where its output is."""

    def start(self) -> None:
        """Start the supervisor; where one runs already, the new one ends."""

    def is_starting(self) -> bool:
        """Whether one was started that has not ended, and may not have its lock yet."""

    def is_queued(self) -> bool:
        """Whether it waits for GPUs, and is no process yet."""

    def stop(self, process: int | None) -> None:
        """Have it end the server; does not wait."""


@dataclass
class LocalHost:
    """This machine.

    Args:
        module: of the supervisor, run with the server's folder as its argument.
    """

    module: str
    folder: Path
    locks: ClassVar[Locks] = file_lock
    is_remote: ClassVar[bool] = False
    _starter: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def log(self) -> str:
        return str(self.folder / LOG)

    def start(self) -> None:
        """By a process that ends once the supervisor is a daemon, nobody's child."""
        kept = {n: v for n, v in os.environ.items() if not n.startswith(_NOT_INHERITED)}
        with (self.folder / LOG).open("ab") as log:
            self._starter = subprocess.Popen(
                [sys.executable, "-m", self.module, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=kept,
                start_new_session=True,
            )

    def is_starting(self) -> bool:
        return self._starter is not None and self._starter.poll() is None

    def is_queued(self) -> bool:
        return False

    def stop(self, process: int | None) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            if process:
                os.kill(process, signal.SIGTERM)
