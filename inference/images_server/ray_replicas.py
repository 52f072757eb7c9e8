"""The replicas on Ray Serve: placed on nodes and GPUs, balanced, watched, and ended."""

import asyncio
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from warehouse.storage import first_line

from ..backends.diffusers.generation_spec import GenerationSpec
from ..roles import BackendError
from .models import ServableImageModel
from .replica import Outcome, Replica
from .settings import ImagesServerSettings

_DEPLOYMENT = "replicas"
_STORE_BYTES = 500_000_000  # pictures on their way between processes
_ERROR_TYPE = re.compile(r"^(?:\w+\.)*\w+: ")
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_LOG_TO_STDERR": "0"}


@dataclass(frozen=True)
class Readiness:
    """How many replicas can draw; `reason`: why it is not all of them."""

    running: int
    wanted: int
    reason: str | None = None

    @property
    def ready(self) -> bool:
        return self.running > 0


class ReplicaPool(Protocol):
    """What the HTTP side needs of the replicas; `wanted`: how many there are to be."""

    @property
    def wanted(self) -> int: ...

    async def draw(self, drawing: GenerationSpec) -> Outcome:
        """Draw with any replica. Cancelled, the replica gives the picture up.

        Raises:
            ReplicaLost: the replica died meanwhile.
        """

    def readiness(self) -> Readiness:
        """How things stand; may take a moment."""


class ReplicaLost(Exception):  # noqa: N818 - reads as what it is
    """The replica that was drawing is gone; another may draw it."""


class RayReplicaPool:
    """Replicas of one model, deployed; see `deployed`."""

    def __init__(self, name: str, handle: Any, wanted: int) -> None:
        self._name, self._handle, self.wanted = name, handle, wanted

    async def draw(self, drawing: GenerationSpec) -> Outcome:
        from ray.exceptions import RayError, RayTaskError
        from ray.serve.exceptions import RayServeException

        response = self._handle.draw.remote(drawing)
        try:
            return await response
        except asyncio.CancelledError:
            response.cancel()
            raise
        except RayTaskError:  # of our own code there
            raise
        except (RayError, RayServeException) as error:
            raise ReplicaLost("the replica that was drawing is gone") from error

    def readiness(self) -> Readiness:
        from ray import serve
        from ray.serve.schema import ReplicaState

        app = serve.status().applications.get(self._name)
        if app is None or _DEPLOYMENT not in app.deployments:
            return Readiness(0, self.wanted, "replicas are being started")
        status = app.deployments[_DEPLOYMENT]
        running = status.replica_states.get(ReplicaState.RUNNING, 0)
        if running == self.wanted:
            return Readiness(running, self.wanted)
        return Readiness(running, self.wanted, _reason(status.message))


@contextmanager
def deployed(
    model: ServableImageModel, settings: ImagesServerSettings, name: str
) -> Iterator[RayReplicaPool]:
    """Replicas that are starting, until the context is left.

    Args:
        name: of the application on Ray Serve; one of that name is replaced.

    Raises:
        BackendError: Ray cannot be started or joined, or lacks the GPUs that are asked for.
    """
    import ray

    for variable, value in _QUIET.items():
        os.environ.setdefault(variable, value)
    try:
        _join(settings)
        yield _deploy(model, settings, name)
    finally:
        if settings.ray and ray.is_initialized():
            _withdraw(name)
        ray.shutdown()


def _join(settings: ImagesServerSettings) -> None:
    import ray

    try:
        if settings.ray:
            ray.init(settings.ray, log_to_driver=False, logging_level=logging.ERROR)
        else:
            ray.init(
                "local",
                num_cpus=_cpus(settings),
                object_store_memory=_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except Exception as error:  # Ray raises errors of all kinds, bare ones among them
        what = f"join a Ray cluster at {settings.ray}" if settings.ray else "start Ray"
        again = "" if settings.ray else "; if this machine is busy, try again"
        raise BackendError(f"cannot {what}: {first_line(error)}{again}") from error


def _cpus(settings: ImagesServerSettings) -> int:
    """As many as the machine has, or more: replicas may share them."""
    return max(os.cpu_count() or 1, (settings.replicas or 1) + 1)


def _deploy(model: ServableImageModel, settings: ImagesServerSettings, name: str) -> RayReplicaPool:
    import ray
    from ray import serve

    gpus = int(ray.cluster_resources().get("GPU", 0))
    on_gpu = _on_gpu(settings, gpus)
    wanted = settings.replicas or (gpus if on_gpu else 1)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    serve.start(proxy_location="Disabled")  # HTTP is ours
    app = _deployment(settings, wanted, on_gpu).bind(
        model, "cuda" if on_gpu else "cpu", settings.batch, settings.gather_seconds
    )
    target = serve.RunTarget(app, name=name, route_prefix=None)
    (handle,) = serve.run_many([target], wait_for_applications_running=False)
    return RayReplicaPool(name, handle, wanted)


def _withdraw(name: str) -> None:
    """Leave somebody else's cluster as it was."""
    from ray import serve

    if name in serve.status().applications:
        serve.delete(name)
    if not serve.status().applications:
        serve.shutdown()


def _on_gpu(settings: ImagesServerSettings, gpus: int) -> bool:
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


def _deployment(settings: ImagesServerSettings, replicas: int, on_gpu: bool) -> Any:
    from ray import serve

    return serve.deployment(
        name=_DEPLOYMENT,
        num_replicas=replicas,
        ray_actor_options={"num_cpus": 1, "num_gpus": int(on_gpu)},
        max_ongoing_requests=2 * settings.batch,  # the next batch waits where it will be drawn
        graceful_shutdown_wait_loop_s=0.2,
        graceful_shutdown_timeout_s=5,
        logging_config={"enable_access_log": False, "log_level": "WARNING"},
    )(Replica)


def _reason(message: str) -> str:
    """What Ray Serve says of a deployment, in a line; of an error in a replica the error itself."""
    lines = message.strip().splitlines()
    if not lines:
        return "replicas are being started"
    if "Traceback" not in message:
        return " ".join(map(str.strip, lines))
    return _ERROR_TYPE.sub("", lines[-1])
