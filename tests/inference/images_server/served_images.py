"""A server in a thread, on a free port, over replicas in this process or on Ray."""

import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import openai
import uvicorn

from inference.backends.diffusers.generation_spec import GenerationSpec
from inference.http.keys import Keys
from inference.images_server.app import make_app
from inference.images_server.models import ServableImageModel
from inference.images_server.ray_replicas import Readiness, ReplicaPool
from inference.images_server.replica import Outcome, Replica
from inference.images_server.settings import ImagesServerSettings
from warehouse import EncodedImage


class Here:
    """One replica in this process."""

    wanted = 1

    def __init__(
        self, model: ServableImageModel, batch: int = 4, gather_seconds: float = 0.01
    ) -> None:
        self.replica = Replica(model, "cpu", batch, gather_seconds)

    async def draw(self, drawing: GenerationSpec) -> Outcome:
        return await self.replica.draw(drawing)

    def readiness(self) -> Readiness:
        return Readiness(1, 1)


@dataclass(frozen=True)
class Served:
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
    studio: ReplicaPool,
    settings: ImagesServerSettings | None = None,
    key: str | None = None,
    **more,
) -> Iterator[Served]:
    """A server over replicas that are there; `more`: settings, where they are not given."""
    keys = Keys([key] if key else [])
    app = make_app(model, studio, settings or ImagesServerSettings(**more), keys)
    config = uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}")
    finally:
        server.should_exit = True
        thread.join()


def pictures(response) -> list[EncodedImage]:
    """Those of an answer of the official client."""
    return [EncodedImage(base64.b64decode(image.b64_json)) for image in response.data]


def metrics(server: Served) -> dict[str, float]:
    """Every number that Prometheus would read."""
    lines = server.get("/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def until(met: Callable[[], object], seconds: float = 300) -> None:
    """Wait for something, for long on a machine that has much to do."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)
