"""Trainers on a Ray cluster whose nodes share this machine's file system: a job per training."""

import hashlib
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from schemas import FoundryError

from . import supervisor
from .jobs import TrainerJob
from .launcher import ExitCode, Launcher

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

_POLL_SECONDS = 1.0
_CLEAN_UP_SECONDS = 10.0
_STOP_SECONDS = 60.0


class RayLauncher(Launcher):
    """Submits drivers as Ray jobs."""

    @contextmanager
    def start(
        self, job: TrainerJob, file: Path, variables: Mapping[str, str]
    ) -> Iterator[ExitCode]:
        """The driver's Ray job. One that a killed run of the same job left is stopped first.

        Raises:
            FoundryError: Ray is not installed, or its job server does not answer.
        """
        client = _client(self.settings.address or "")
        name = _submission_id(job)
        _stop(client, name)
        client.submit_job(
            entrypoint=self._entrypoint(job, file),
            submission_id=name,
            entrypoint_num_gpus=job.gpus or None,
            runtime_env={"env_vars": self._variables(variables)},
            metadata={"name": job.name},
        )
        try:
            yield partial(_exit_code, client, name)
        finally:
            _stop(client, name)

    def _entrypoint(self, job: TrainerJob, file: Path) -> str:
        python = self.settings.python or sys.executable
        grace = str(self.settings.grace_seconds)
        return shlex.join([python, "-m", supervisor.__name__, job.module, str(file), grace])

    def _variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        # Ray's own KILL must come after the supervisor has ended everything.
        wait = int(self.settings.grace_seconds + _CLEAN_UP_SECONDS)
        return {**variables, "RAY_JOB_STOP_WAIT_TIME_S": str(wait)}


def _submission_id(job: TrainerJob) -> str:
    """The same for every attempt at a job, so that a leftover one is found."""
    return f"interleave-{hashlib.sha256(str(job.folder).encode()).hexdigest()[:16]}"


def _client(address: str) -> "JobSubmissionClient":
    try:
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise FoundryError("the ray launcher needs Ray: pip install 'ray[default]'") from error
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise FoundryError(
            f"the Ray job server at {address} rejects our token: set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as on the cluster"
        ) from error
    except (ConnectionError, RuntimeError) as error:
        raise FoundryError(
            f"no Ray job server at {address}: start the cluster, or correct launcher.address"
        ) from error


def _stop(client: "JobSubmissionClient", name: str) -> None:
    """Stop a job if there is one, wait until it is, and forget it."""
    from ray.job_submission import JobStatus

    with suppress(RuntimeError):  # no such job
        client.stop_job(name)
        deadline = time.monotonic() + _STOP_SECONDS
        while not JobStatus(client.get_job_status(name)).is_terminal():
            if time.monotonic() > deadline:
                raise FoundryError(f"Ray did not stop job {name}; stop it with `ray job stop`")
            time.sleep(_POLL_SECONDS)
        client.delete_job(name)


def _exit_code(client: "JobSubmissionClient", name: str) -> int | None:
    info = client.get_job_info(name)
    if not info.status.is_terminal():
        return None
    return 0 if info.status == "SUCCEEDED" else info.driver_exit_code or 1
