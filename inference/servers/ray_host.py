"""A node of a Ray cluster as the host of a server: the supervisor is a job.

Ray runs a job's command on one node and reserves all of its GPUs there: a placement group of one
bundle. A job waits in Ray's queue until a node has as many free.
"""

import hashlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from schemas import FoundryError
from warehouse import heartbeat_lock
from warehouse.home import lease_seconds

from ..roles import BackendError
from . import hosts
from .ray_jobs import GPUS_KEY, job_client, reachable_host, waited_in_vain

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

_STOP_SECONDS = 40  # for a server to end, before Ray kills what is left
_UNKNOWN_JOB = "status code 404"
_LOOK_SECONDS = 3.0


@dataclass
class RayHost(hosts.LocalHost):
    """Locks are heartbeats in the folder, which all nodes see.

    Its methods raise BackendError where there is no job server.
    """

    locks: ClassVar[hosts.Locks] = heartbeat_lock
    _looked_at: float = field(default=0.0, init=False)

    @property
    def log(self) -> str:
        return f"`ray job logs {self.name} --address {self._cluster}`"

    @property
    def name(self) -> str:
        """The same for all processes that start it: Ray runs one job of a name."""
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()
        return f"interleave-server-{self.folder.name}-{digest[:8]}"

    def is_starting(self) -> bool:
        """Whether the job runs or waits for its GPUs; where Ray gave up waiting, it waits again."""
        try:
            job = self._client.get_job_info(self.name)
        except (RuntimeError, OSError) as error:
            return _UNKNOWN_JOB not in str(error)  # else the job server fails: it is asked again
        if waited_in_vain(job):
            self.start()
            return True
        return not job.status.is_terminal()

    def is_queued(self) -> bool:
        with suppress(RuntimeError, OSError):  # no such job
            return bool(self._client.get_job_status(self.name) == "PENDING")
        return False

    def start(self) -> None:
        """Submit it, unless somebody else just has."""
        gpus = self.spec.settings.reserved_gpus
        variables = {
            "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS),
            "INTERLEAVE_LOCAL": str(self.folder.parents[1]),
            "INTERLEAVE_LEASE_SECONDS": f"{lease_seconds():g}",
        }
        with suppress(RuntimeError, OSError):  # there is none, or it runs
            self._client.delete_job(self.name)
        with suppress(RuntimeError, OSError):  # there is one, or Ray does not answer now
            self._client.submit_job(
                entrypoint=shlex.join([sys.executable, "-m", hosts.SUPERVISOR, str(self.folder)]),
                submission_id=self.name,
                entrypoint_num_gpus=gpus or None,
                runtime_env={"env_vars": variables},
                metadata={"name": self.folder.name, GPUS_KEY: f"{gpus:g}"},
            )

    def stop(self, process: int | None) -> None:
        with suppress(RuntimeError, OSError):  # no such job
            self._client.stop_job(self.name)

    def enter(self) -> None:
        """What this process starts may have a Ray of its own: forget that this is a job of one.

        The token stays, for its job server.
        """
        for name in list(os.environ):
            if name.startswith("RAY_") and not name.startswith("RAY_AUTH_"):
                del os.environ[name]

    @property
    def address(self) -> str:
        return reachable_host(urlsplit(self._cluster).hostname or "")

    @property
    def variables(self) -> Mapping[str, str]:
        """Ray says which GPUs it has reserved."""
        return {} if self.spec.settings.gpus else {"CUDA_VISIBLE_DEVICES": ""}

    def claimed(
        self, holder: str, waiting: Callable[[str], object]
    ) -> AbstractContextManager[object]:
        return nullcontext()  # reserved since the job began

    def is_wanted(self) -> bool:
        """Whether a training or another server waits for GPUs in the cluster's queue."""
        now = time.monotonic()
        if not self.spec.settings.gpus or now - self._looked_at < _LOOK_SECONDS:
            return False
        self._looked_at = now
        try:
            jobs = self._client.list_jobs()
        except (RuntimeError, OSError):  # the job server is restarting
            return False
        waiting = (job.metadata or {} for job in jobs if job.status == "PENDING")
        return any(float(metadata.get(GPUS_KEY, 0)) for metadata in waiting)

    @property
    def _cluster(self) -> str:
        return self.spec.settings.ray or ""

    @cached_property
    def _client(self) -> "JobSubmissionClient":
        try:
            return job_client(self._cluster)
        except FoundryError as error:
            raise BackendError(str(error)) from error
