"""An images server in a thread, on a free port, over replicas in this process or on Ray."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from inference.backends.diffusers.pipeline_runner import GenerationSpec
from inference.http.auth import Keys
from inference.http.server import HTTPServer, listening_socket
from inference.images_server.app import make_app
from inference.images_server.models import (
    ImagesServerSettings,
    Replica,
    ReplicaResult,
    ServableImageModel,
)
from inference.images_server.ray_replicas import Readiness, ReplicaPool
from tests.inference.service.running_service import RunningServer, wait_until
from warehouse import EncodedImage


class LocalReplica:
    """One replica in this process."""

    wanted = 1

    def __init__(
        self, model: ServableImageModel, batch: int = 4, gather_seconds: float = 0.01
    ) -> None:
        self.replica = Replica(model, "cpu", batch, gather_seconds)

    async def draw(self, spec: GenerationSpec) -> ReplicaResult:
        return await self.replica.draw(spec)

    def readiness(self) -> Readiness:
        return Readiness(1, 1)


@contextmanager
def served(
    model: ServableImageModel,
    replicas: ReplicaPool,
    settings: ImagesServerSettings | None = None,
    key: str | None = None,
    **more,
) -> Iterator[RunningServer]:
    """A server over these replicas; `more`: settings, instead of `settings`."""
    keys = Keys([key] if key else [])
    app = make_app(model, replicas, settings or ImagesServerSettings(**more), keys)
    server = HTTPServer(app, idle_seconds=60, grace_seconds=5)
    with listening_socket("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield RunningServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join()


def images_of(response) -> list[EncodedImage]:
    """The images of a response of the official client."""
    return [EncodedImage(base64.b64decode(image.b64_json)) for image in response.data]


until = partial(wait_until, seconds=300)  # for long on a busy machine
