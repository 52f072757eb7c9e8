"""A training's driver as a job of a Ray cluster that shares this machine's file system."""

import hashlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from inference.servers import processes
from inference.servers.ray_jobs import GPUS_KEY, job_client, submit_job, waited_in_vain
from schemas import FoundryError

from .jobs import LauncherSettings, TrainerJob

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

# Of a driver; None while it runs.
ExitCode = Callable[[], int | None]
# Starts a driver, with more variables, or follows the one that runs.
StartDriver = Callable[[Mapping[str, str]], ExitCode]
_POLL_SECONDS = 1.0
_CLEAN_UP_SECONDS = 10.0
_STOP_SECONDS = 60.0
_SILENT_SECONDS = 300.0  # without a job server, as while a head restarts


@dataclass(frozen=True)
class RayDriver:
    """A job's driver as a Ray job; the job outlives the run that submitted it, if that is killed.

    Raises:
        FoundryError: there is no job server, or Ray is not installed.
    """

    job: TrainerJob
    file: Path
    settings: LauncherSettings

    @property
    def name(self) -> str:
        """The same for every attempt at a job, so that one that still runs is found."""
        return f"interleave-{hashlib.sha256(str(self.job.folder).encode()).hexdigest()[:16]}"

    @cached_property
    def running(self) -> str | None:
        """The name of the Ray job, if it has not ended."""
        with suppress(RuntimeError):  # there is none
            if not self._client.get_job_status(self.name).is_terminal():
                return self.name
        return None

    @contextmanager
    def run(self) -> Iterator[StartDriver]:
        """Gives what starts the job, unless it runs; leaving ends it."""
        self._withdrawn.unlink(missing_ok=True)
        try:
            yield self._start
        finally:
            self._end()

    def _start(self, variables: Mapping[str, str]) -> ExitCode:
        if not self.running:
            self._submit(variables)
        return RayJobStatus(self._client, self.name, partial(self._submit, variables)).exit_code

    def _end(self) -> None:
        """Ray cannot take a job out of its queue: one that waits there ends when it has its GPUs,
        unless another run follows it by then."""
        self._withdrawn.touch()
        with suppress(RuntimeError, OSError):  # there is none
            if self._client.get_job_status(self.name) == "PENDING":
                return
        _stop(self._client, self.name)
        self._withdrawn.unlink()

    @property
    def _withdrawn(self) -> Path:
        return self.job.folder / processes.WITHDRAWN

    @cached_property
    def _client(self) -> "JobSubmissionClient":
        return job_client(self.settings.address or "")

    def _submit(self, variables: Mapping[str, str]) -> None:
        grace = self.settings.grace_seconds
        command = [
            sys.executable,
            "-m",
            processes.__name__,
            self.job.module,
            str(self.file),
            str(grace),
        ]
        # Ray's own KILL must come after the supervisor has ended everything.
        wait = {"RAY_JOB_STOP_WAIT_TIME_S": str(int(grace + _CLEAN_UP_SECONDS))}
        _stop(self._client, self.name)  # forget one that has ended
        submit_job(
            self._client,
            entrypoint=shlex.join(command),
            submission_id=self.name,
            entrypoint_num_gpus=self.job.gpus or None,
            runtime_env={"env_vars": {**variables, **wait}},
            metadata={"name": self.job.name, GPUS_KEY: str(self.job.gpus)},
        )


def _stop(client: "JobSubmissionClient", name: str) -> None:
    """Stop a job if there is one, wait until it is, and forget it."""
    with suppress(RuntimeError, OSError):  # no such job; or no job server: the next run stops it
        client.stop_job(name)
        deadline = time.monotonic() + _STOP_SECONDS
        while not client.get_job_status(name).is_terminal():
            if time.monotonic() > deadline:
                raise FoundryError(f"Ray did not stop job {name}; stop it with `ray job stop`")
            time.sleep(_POLL_SECONDS)
        client.delete_job(name)


@dataclass
class RayJobStatus:
    """Asks for a job's exit code; a job server that is silent for a while is asked again.

    Args:
        submit: submits the job again, where Ray gave up waiting for its GPUs.
    """

    client: "JobSubmissionClient"
    name: str
    submit: Callable[[], object]
    answered_at: float = field(default_factory=time.monotonic)
    asked_at: float = float("-inf")

    def exit_code(self) -> int | None:
        """None while it runs, and where the job server does not say.

        Raises:
            FoundryError: the job server has been silent for minutes, or does not know the job.
        """
        now = time.monotonic()
        if now - self.asked_at < _POLL_SECONDS:
            return None
        self.asked_at = now
        try:
            info = self.client.get_job_info(self.name)
        except Exception as error:  # whatever its HTTP client and Ray raise
            self._require_patience(error)
            return None
        self.answered_at = time.monotonic()
        if waited_in_vain(info):
            self.submit()
            return None
        if not info.status.is_terminal():
            return None
        return 0 if info.status == "SUCCEEDED" else info.driver_exit_code or 1

    def _require_patience(self, error: Exception) -> None:
        silent = time.monotonic() - self.answered_at
        if silent > _SILENT_SECONDS:
            reason = " ".join(str(error).split())[:200]
            raise FoundryError(
                f"Ray's job server has not answered about job {self.name} for {silent:.0f} s "
                f"({reason}): start the cluster, then run again to resume"
            ) from error
