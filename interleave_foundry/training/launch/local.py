"""Trainers on this machine: the driver in a session of its own, all of it ended with the run."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from .driver import DRIVER_LOG, LEASH
from .jobs import TrainerJob
from .launcher import Launcher, Running
from .processes import JOB_MARK, end_processes, marked


class LocalLauncher(Launcher):
    """Starts drivers as processes of this machine."""

    @contextmanager
    def start(self, job: TrainerJob, file: Path, variables: Mapping[str, str]) -> Iterator[Running]:
        """The driver's process. What a killed run of the same job left is ended first."""
        grace = self.settings.grace_seconds
        end_processes(lambda: marked(JOB_MARK, str(job.folder)), grace)
        environment = {**os.environ, **variables, JOB_MARK: str(job.folder), LEASH: "1"}
        command = [sys.executable, "-m", job.module, str(file)]
        with (job.folder / DRIVER_LOG).open("ab") as log:
            # Standard input is the leash: it ends when this process does, however it dies.
            driver = subprocess.Popen(
                command,
                cwd=job.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield _Process(driver)
        finally:
            end_processes(lambda: _all_of(driver, job), grace)
            driver.wait()
            assert driver.stdin
            driver.stdin.close()


def _all_of(driver: subprocess.Popen[bytes], job: TrainerJob) -> list[psutil.Process]:
    """The driver, everything marked as the job's, and everything in the driver's session."""
    members = [process for process in psutil.process_iter() if _session_of(process) == driver.pid]
    return [*{*members, *marked(JOB_MARK, str(job.folder))}]


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


class _Process(Running):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def code(self) -> int | None:
        return self._process.poll()
