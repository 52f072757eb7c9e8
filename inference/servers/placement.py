"""The GPUs of a server, claimed on this machine, or reserved by Ray before its supervisor runs."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from ..environments import gpus
from .gpus import claimed_gpus, is_wanted, visible_devices
from .ray_jobs import GPUS_KEY, job_client, reachable_host
from .server_process import ServerFailedError
from .settings import Server

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

_LOOK_SECONDS = 3.0


class Placement(Protocol):
    """Where a server runs."""

    @property
    def host(self) -> str:
        """Address on which it listens."""

    def claimed(
        self, holder: str, waiting: Callable[[str], object]
    ) -> AbstractContextManager[object]:
        """Hold the server's GPUs; see `claimed_gpus`.

        Raises:
            ServerFailedError: there are fewer.
        """

    def is_wanted(self) -> bool:
        """Whether somebody waits for GPUs that it has."""

    @property
    def variables(self) -> Mapping[str, str]:
        """What tells programs which GPUs are theirs."""


@dataclass(frozen=True)
class ThisMachine:
    """GPUs by their numbers, which all homes of this machine claim."""

    server: str
    settings: Server

    @property
    def host(self) -> str:
        return "127.0.0.1"

    def claimed(
        self, holder: str, waiting: Callable[[str], object]
    ) -> AbstractContextManager[object]:
        if missing := [gpu for gpu in self.settings.gpus if gpu >= gpus()]:
            raise ServerFailedError(
                f"this machine has {gpus()} GPUs, and it is to take GPU {missing[0]}: change "
                f"`servers.{self.server}.gpus`"
            )
        return claimed_gpus(self.settings.gpus, self.settings.memory, holder, waiting)

    def is_wanted(self) -> bool:
        return is_wanted(self.settings.gpus)

    @property
    def variables(self) -> Mapping[str, str]:
        return {"CUDA_VISIBLE_DEVICES": visible_devices(self.settings.gpus)}


@dataclass
class RayNode:
    """The node on which this process is a job; Ray has reserved its GPUs, and says which."""

    address: str
    settings: Server
    looked_at: float = field(default=0.0, init=False)

    @property
    def host(self) -> str:
        return reachable_host(urlsplit(self.address).hostname or "")

    def claimed(
        self, holder: str, waiting: Callable[[str], object]
    ) -> AbstractContextManager[object]:
        return nullcontext()

    def is_wanted(self) -> bool:
        """Whether a training or another server waits for GPUs in the cluster's queue."""
        now = time.monotonic()
        if not self.settings.gpus or now - self.looked_at < _LOOK_SECONDS:
            return False
        self.looked_at = now
        try:
            jobs = self._client.list_jobs()
        except (RuntimeError, OSError):  # the job server is restarting
            return False
        waiting = (job.metadata or {} for job in jobs if job.status == "PENDING")
        return any(float(metadata.get(GPUS_KEY, 0)) for metadata in waiting)

    @property
    def variables(self) -> Mapping[str, str]:
        return {} if self.settings.gpus else {"CUDA_VISIBLE_DEVICES": ""}

    @cached_property
    def _client(self) -> "JobSubmissionClient":
        return job_client(self.address)


def leave_job() -> None:
    """What this process starts may have a Ray of its own: forget that this is a job of one.

    The token stays, for its job server.
    """
    for name in list(os.environ):
        if name.startswith("RAY_") and not name.startswith("RAY_AUTH_"):
            del os.environ[name]
