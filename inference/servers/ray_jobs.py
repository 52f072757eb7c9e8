"""Servers on a Ray cluster: the supervisor of each is a job.

Ray runs a job's command on one node and reserves all of its GPUs there: a placement group of one
bundle. A job waits in Ray's queue until a node has as many free.
"""

import hashlib
import shlex
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from schemas import FoundryError
from warehouse import heartbeat_lock
from warehouse.home import lease_seconds

from ..roles import BackendError
from .supervisors import Locks

if TYPE_CHECKING:
    from ray.dashboard.modules.job.pydantic_models import JobDetails
    from ray.job_submission import JobSubmissionClient

# Key of a job's metadata: how many GPUs it takes. Ray does not say what a job waits for.
GPUS_KEY = "gpus"
_STOP_SECONDS = 40  # for a server to end, before Ray kills what is left
_UNKNOWN_JOB = "status code 404"
_NOT_STARTED = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
_NO_AGENT = "No available agent"
_ELSEWHERE = "192.0.2.1"  # reserved for documentation: routed, but nobody's
_AGENT_SECONDS = 60.0  # until a new node has one, on a busy machine


def job_client(address: str) -> "JobSubmissionClient":
    """A client of Ray's job server.

    Raises:
        FoundryError: there is none at the address, it rejects us, or Ray is not installed.
    """
    try:
        from ray.exceptions import AuthenticationError
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise FoundryError("a Ray cluster needs Ray here as well: run `make cluster`") from error
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise FoundryError(
            f"the Ray job server at {address} rejects our token: set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as on the cluster"
        ) from error
    except (ConnectionError, RuntimeError) as error:
        raise FoundryError(
            f"no Ray job server at {address}: start the cluster, or correct the address in the "
            "profile"
        ) from error


def submit_job(client: "JobSubmissionClient", **job: Any) -> None:
    """Submit a job; a cluster whose nodes still start their agents is asked again for a minute.

    Raises:
        RuntimeError: Ray does not take it.
    """
    deadline = time.monotonic() + _AGENT_SECONDS
    while True:
        try:
            client.submit_job(**job)
            return
        except RuntimeError as error:
            if _NO_AGENT not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(1)


def reachable_host(peer: str = _ELSEWHERE) -> str:
    """The address of this machine on the way to `peer`, a host or address; nothing is sent.

    Raises:
        FoundryError: there is no way to it.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            host: str = probe.getsockname()[0]
            return host
    except OSError as error:
        raise FoundryError(f"no network interface leads to {peer}: {error}") from error


def gpus_of_nodes(address: str) -> list[float] | None:
    """How many GPUs each living node has; None: the cluster does not answer."""
    try:
        from ray.util.state import list_nodes

        nodes = list_nodes(address=address, filters=[("state", "=", "ALIVE")])
    except Exception:  # Ray's own, requests'; or it is not installed
        return None
    return [node.resources_total.get("GPU", 0.0) for node in nodes]


def waited_in_vain(job: "JobDetails") -> bool:
    """Whether Ray gave a job up that had waited for its GPUs for RAY_JOB_START_TIMEOUT_SECONDS."""
    return bool(job.error_type == _NOT_STARTED)


@dataclass
class RayHost:
    """A node of a Ray cluster.

    Args:
        module: of the supervisor, run with the server's folder as its argument.
        folder: below `servers` of the home's local folder, which all nodes see.
        address: of the cluster's job server.
        gpus: reserved on one node; less than 1: a share.
    """

    module: str
    folder: Path
    address: str
    gpus: float
    locks: ClassVar[Locks] = heartbeat_lock
    is_remote: ClassVar[bool] = True

    @property
    def log(self) -> str:
        return f"`ray job logs {self.name} --address {self.address}`"

    @property
    def name(self) -> str:
        """The same for all processes that start it: Ray runs one job of a name."""
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()
        return f"interleave-server-{self.folder.name}-{digest[:8]}"

    def is_starting(self) -> bool:
        """Whether the job runs or waits for its GPUs; where Ray gave up waiting, it waits again.

        This and the next ones raise BackendError where there is no job server.
        """
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
        variables = {
            "RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_SECONDS),
            "INTERLEAVE_LOCAL": str(self.folder.parents[1]),
            "INTERLEAVE_LEASE_SECONDS": f"{lease_seconds():g}",
        }
        with suppress(RuntimeError, OSError):  # there is none, or it runs
            self._client.delete_job(self.name)
        with suppress(RuntimeError, OSError):  # there is one, or Ray does not answer now
            self._client.submit_job(
                entrypoint=shlex.join([sys.executable, "-m", self.module, str(self.folder)]),
                submission_id=self.name,
                entrypoint_num_gpus=self.gpus or None,
                runtime_env={"env_vars": variables},
                metadata={"name": self.folder.name, GPUS_KEY: f"{self.gpus:g}"},
            )

    def stop(self, process: int | None) -> None:
        with suppress(RuntimeError, OSError):  # no such job
            self._client.stop_job(self.name)

    @cached_property
    def _client(self) -> "JobSubmissionClient":
        try:
            return job_client(self.address)
        except FoundryError as error:
            raise BackendError(str(error)) from error
