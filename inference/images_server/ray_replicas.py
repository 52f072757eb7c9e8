"""Replicas on Ray Serve, which places them on nodes and GPUs, balances and restarts them."""

import asyncio
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from warehouse.storage import first_line

from ..backends.diffusers.pipeline_runner import GenerationSpec
from ..roles import BackendError
from ..servers.ray_jobs import starting_ray
from .models import ImagesServerSettings, Replica, ReplicaResult, ServableImageModel

_DEPLOYMENT = "replicas"
_STORE_BYTES = 500_000_000  # for images in transfer between processes
_ERROR_TYPE = re.compile(r"^(?:\w+\.)*\w+: ")
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_LOG_TO_STDERR": "0"}


@dataclass(frozen=True)
class Readiness:
    """How many replicas are running; `reason`: why not all that are wanted."""

    running: int
    wanted: int
    reason: str | None = None

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.running} of {self.wanted} replicas are running{reason}"


class ReplicaLostError(Exception):
    """The replica died while it was generating; another one may succeed."""


class ReplicaPool:
    """Replicas of one model, which `deploy` has started; `wanted`: how many there should be."""

    def __init__(self, name: str, handle: Any, wanted: int) -> None:
        self._name, self._handle, self.wanted = name, handle, wanted

    async def draw(self, spec: GenerationSpec) -> ReplicaResult:
        """Generate an image on any replica; cancelling this cancels it there.

        Raises:
            ReplicaLostError: the replica has died.
        """
        from ray.exceptions import RayError, RayTaskError
        from ray.serve.exceptions import RayServeException

        response = self._handle.draw.remote(spec)
        try:
            return await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        except RayTaskError:  # a bug of ours in the replica
            raise
        except (RayError, RayServeException) as error:
            raise ReplicaLostError("the replica died while it was generating") from error

    def readiness(self) -> Readiness:
        """The current state; may block for a moment."""
        from ray import serve
        from ray.serve.schema import ReplicaState

        app = serve.status().applications.get(self._name)
        if app is None or _DEPLOYMENT not in app.deployments:
            return Readiness(0, self.wanted, "replicas are being started")
        status = app.deployments[_DEPLOYMENT]
        running = status.replica_states.get(ReplicaState.RUNNING, 0)
        reason = None if running == self.wanted else _reason(status.message)
        return Readiness(running, self.wanted, reason)


@contextmanager
def deploy(
    model: ServableImageModel, settings: ImagesServerSettings, name: str
) -> Iterator[ReplicaPool]:
    """Deploy replicas for the duration of the context; they are still starting when it begins.

    An application of Ray Serve that has this name already is replaced.

    Raises:
        BackendError: Ray cannot be started or joined, or has too few GPUs.
    """
    import ray

    for variable, value in _QUIET.items():
        os.environ.setdefault(variable, value)
    try:
        _join(settings)
        yield _deploy(model, settings, name)
    finally:
        if settings.ray and ray.is_initialized():
            _remove_app(name)
        ray.shutdown()


def _join(settings: ImagesServerSettings) -> None:
    import ray

    try:
        if settings.ray:
            ray.init(settings.ray, log_to_driver=False, logging_level=logging.ERROR)
        else:
            _start_ray(settings.replicas or 1)
    except Exception as error:  # Ray raises errors of all kinds, bare ones among them
        action = f"join a Ray cluster at {settings.ray}" if settings.ray else "start Ray"
        hint = "" if settings.ray else "; if this machine is busy, try again"
        raise BackendError(f"cannot {action}: {first_line(error)}{hint}") from error


def _start_ray(replicas: int) -> None:
    """A Ray of this process."""
    import ray

    starting_ray(before_sleep=lambda _: ray.shutdown())(
        ray.init,
        "local",
        # All of the machine's, or more: replicas may share them.
        num_cpus=max(os.cpu_count() or 1, replicas + 1),
        object_store_memory=_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _deploy(model: ServableImageModel, settings: ImagesServerSettings, name: str) -> ReplicaPool:
    import ray
    from ray import serve

    gpus = int(ray.cluster_resources().get("GPU", 0))
    on_gpu = _uses_gpu(settings, gpus)
    wanted = settings.replicas or (gpus if on_gpu else 1)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    serve.start(proxy_location="Disabled")  # we serve HTTP ourselves
    deployment = serve.deployment(
        name=_DEPLOYMENT,
        num_replicas=wanted,
        ray_actor_options={"num_cpus": 1, "num_gpus": int(on_gpu)},
        max_ongoing_requests=2 * settings.batch,  # the next batch waits at its replica
        graceful_shutdown_wait_loop_s=0.2,
        graceful_shutdown_timeout_s=5,
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )(Replica)
    device = "cuda" if on_gpu else "cpu"
    app = deployment.bind(model, device, settings.batch)
    target = serve.RunTarget(app, name=name, route_prefix=None)
    (handle,) = serve.run_many([target], wait_for_applications_running=False)
    return ReplicaPool(name, handle, wanted)


def _remove_app(name: str) -> None:
    """Remove our application from a cluster that is not ours."""
    from ray import serve

    if name in serve.status().applications:
        serve.delete(name)
    if not serve.status().applications:
        serve.shutdown()


def _uses_gpu(settings: ImagesServerSettings, gpus: int) -> bool:
    if settings.device == "cpu":
        return False
    if settings.device == "cuda" and not gpus:
        raise BackendError("Ray has no GPU here; leave --device out, or say --device cpu")
    if gpus and settings.ray is None and (settings.replicas or 1) > gpus:
        raise BackendError(
            f"{settings.replicas} replicas need a GPU each, and there are {gpus}; ask for fewer, "
            "or say --device cpu"
        )
    return gpus > 0


def _reason(message: str) -> str:
    """Ray Serve's message about a deployment in one line; of a traceback only the error."""
    lines = message.strip().splitlines()
    if not lines:
        return "replicas are being started"
    if "Traceback" not in message:
        return " ".join(map(str.strip, lines))
    return _ERROR_TYPE.sub("", lines[-1])
