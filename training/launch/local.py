"""Trainers on this machine."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .jobs import TrainerJob
from .launcher import Launcher, Running
from .supervisor import supervised_driver


class LocalLauncher(Launcher):
    """Starts drivers as processes of this machine."""

    @contextmanager
    def start(self, job: TrainerJob, file: Path, variables: Mapping[str, str]) -> Iterator[Running]:
        """The driver's process."""
        with supervised_driver(job.module, file, variables, self.settings.grace_seconds) as driver:
            yield _Process(driver)


class _Process(Running):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def code(self) -> int | None:
        return self._process.poll()
