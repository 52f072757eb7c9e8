"""An images server in a thread, on a free port, over replicas in this process or on Ray."""

import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import openai

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


@dataclass(frozen=True)
class RunningServer:
    """A running server."""

    url: str

    def client(self, retries: int = 0, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=retries)

    def get(self, path: str, **more) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, **more)

    def post(self, path: str, **more) -> httpx.Response:
        return httpx.post(self.url + path, timeout=60, **more)


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


def metrics(server: RunningServer) -> dict[str, float]:
    """Every number that Prometheus would read."""
    lines = server.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def until(condition: Callable[[], object], seconds: float = 300) -> None:
    """Wait for a condition, for long on a busy machine."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.05)
