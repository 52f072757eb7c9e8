"""Jobs of a Ray cluster: its job server, nodes and addresses; and a Ray that starts slowly."""

import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tenacity import Retrying, retry_if_exception, stop_after_attempt

from schemas import FoundryError

if TYPE_CHECKING:
    from ray.dashboard.modules.job.pydantic_models import JobDetails
    from ray.job_submission import JobSubmissionClient

# Key of a job's metadata: how many GPUs it takes. Ray does not say what a job waits for.
GPUS_KEY = "gpus"
_NOT_STARTED = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"
_NO_AGENT = "No available agent"
_ELSEWHERE = "192.0.2.1"  # reserved for documentation: routed, but nobody's
_AGENT_SECONDS = 60.0  # until a new node has one, on a busy machine
_TIMED_OUT = "The current node timed out during startup"
# Calls what starts a Ray, again where its agents took more than 15 s, which a busy machine may need
# (ray-project/ray#65983): nothing is wrong then.
starting_ray = partial(
    Retrying,
    retry=retry_if_exception(lambda error: _TIMED_OUT in str(error)),
    stop=stop_after_attempt(3),
    reraise=True,
)


def job_client(address: str) -> "JobSubmissionClient":
    """A client of Ray's job server.

    Raises `FoundryError`: there is none at the address, it rejects us, or Ray is not installed.
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

    Raises `RuntimeError`: Ray does not take it.
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

    Raises `FoundryError`: there is no way to it.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            host: str = probe.getsockname()[0]
            return host
    except OSError as error:
        raise FoundryError(f"no network interface leads to {peer}: {error}") from error


def free_port(host: str = "") -> int:
    """A port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


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
