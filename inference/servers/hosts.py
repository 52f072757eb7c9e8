"""Where a server and its supervisor run: this machine, or a node of a Ray cluster.

On a cluster the supervisor is a job. Ray runs a job's command on one node and reserves all of its
GPUs there: a placement group of one bundle. A job waits in Ray's queue until a node has as many
free.
"""

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol
from urllib.parse import urlsplit

from schemas import FoundryError
from warehouse import file_lock, heartbeat_lock
from warehouse.home import lease_seconds

from ..environments import gpus
from ..roles import BackendError
from .gpus import claimed_gpus, is_wanted, visible_devices
from .ray_jobs import GPUS_KEY, job_client, reachable_host, waited_in_vain
from .settings import ServerSpec

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

# A module, run as a process with the server's folder as its argument.
SUPERVISOR = "inference.servers.supervisor"
LOG = "supervisor.log"
# Variables of a training, or of a run of Dagster, which a server outlives.
_NOT_INHERITED = ("INTERLEAVE_TRAIN", "DAGSTER_PIPES_", "RAY_")
_STOP_SECONDS = 40  # for a server to end, before Ray kills what is left
_UNKNOWN_JOB = "status code 404"
_LOOK_SECONDS = 3.0


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


@dataclass
class RayHost(LocalHost):
    """Locks are heartbeats in the folder, which all nodes see.

    Its methods raise BackendError where there is no job server.
    """

    locks: ClassVar[Locks] = heartbeat_lock
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
                entrypoint=shlex.join([sys.executable, "-m", SUPERVISOR, str(self.folder)]),
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
