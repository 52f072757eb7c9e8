"""A service in a thread, on a free port, told by the sketch world's teachers or by others."""

import asyncio
import base64
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import openai

from assets.core.profile import load_profile
from inference.generation.agent_resolver import ResolvedRoles
from inference.http.auth import Keys
from inference.http.server import listening_socket
from inference.roles import BackendError, Roles
from inference.service.app import make_app
from inference.service.server import ServiceServer
from inference.service.service import Service, open_service
from inference.service.settings import ServiceSettings
from schemas import FoundryError
from warehouse import EncodedImage, Home

SNOWMAN = "Show how to build a snowman in 4 steps"
HOUSE = "A red house beside a tree"


@dataclass
class Players:
    """Casts the same players for everybody; knows no other critic."""

    roles: Roles

    async def cast(self, critic: str | None = None) -> ResolvedRoles:
        if critic:
            raise BackendError(f"no critic {critic} here")
        return ResolvedRoles(self.roles)

    async def check(self) -> None:
        pass


class Gate:
    """Holds back whoever asks, until it is opened."""

    def __init__(self) -> None:
        self.go_on, self.waiting, self.cancelled = threading.Event(), 0, 0

    async def passed(self) -> None:
        self.waiting += 1
        try:
            while not self.go_on.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1


class HeldPlanner:
    """Plans when the gate is open."""

    def __init__(self, planner: Any, gate: Gate) -> None:
        self._planner, self._gate = planner, gate
        self.backend, self.model = planner.backend, planner.model

    async def plan(self, request):
        await self._gate.passed()
        return await self._planner.plan(request)


class CountedGenerator:
    """Draws, counts, and perhaps only so many pictures before the gate has to be open."""

    references = 1

    def __init__(self, generator: Any, gate: Gate | None = None, free: int = 0) -> None:
        self._generator, self._gate, self._free = generator, gate, free
        self.backend, self.model, self.calls = generator.backend, generator.model, []

    async def generate(self, prompt, images, seed):
        if self._gate and len(self.calls) >= self._free:
            await self._gate.passed()
        self.calls.append((prompt, seed))
        return await self._generator.generate(prompt, images, seed)


def sketched(home: Home, **others) -> Roles:
    """The sketch world's players, some of them replaced."""
    return replace(load_profile("sketch").build(home), **others)


@dataclass(frozen=True)
class Running:
    """A running service."""

    url: str
    service: Service
    server: ServiceServer

    def client(self, retries: int = 0, key: str = "none", **more) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=retries, **more)

    def async_client(self, retries: int = 0, key: str = "none") -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=retries)

    def get(self, path: str, **more) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, **more)

    def post(self, path: str, **more) -> httpx.Response:
        return httpx.post(self.url + path, timeout=60, **more)

    def metrics(self) -> dict[str, float]:
        lines = self.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def stop(self) -> None:
        self.server.should_exit = True


@contextmanager
def running(
    home: Home, roles: Roles | None = None, keys: tuple[str, ...] = (), **settings
) -> Iterator[Running]:
    """A service, stopped at the end as TERM stops it."""
    profile = load_profile("sketch")
    players = Players(roles or profile.build(home))
    started: Future[tuple[Service, ServiceServer]] = Future()

    async def main(door) -> None:
        chosen = ServiceSettings(**{"grace_seconds": 0} | settings)
        async with open_service(home, players, profile.loop, profile.limits, chosen) as service:
            server = ServiceServer(make_app(service, Keys(keys)), service.desk, chosen)
            started.set_result((service, server))
            await server.serve(sockets=[door])

    def work(door) -> None:
        try:
            asyncio.run(main(door))
        except FoundryError as error:
            started.set_exception(error)

    with listening_socket("127.0.0.1", 0) as door:
        address = f"http://127.0.0.1:{door.getsockname()[1]}"
        thread = threading.Thread(target=work, args=(door,))
        thread.start()
        service, server = started.result(60)
        try:
            yield Running(address, service, server)
        finally:
            server.should_exit = True
            thread.join()


def decoded(text: str) -> EncodedImage:
    """A picture in base64."""
    return EncodedImage(base64.b64decode(text))


def pictures_of(response) -> list[EncodedImage]:
    """A response's pictures, in order."""
    return [
        decoded(item.result) for item in response.output if item.type == "image_generation_call"
    ]


def data_uri(picture: EncodedImage) -> str:
    return f"data:{picture.mime};base64,{base64.b64encode(picture.data).decode()}"


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """An error in OpenAI's shape, and nothing of our code in it."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in response.text and ".py" not in response.text
    return error


def until(met: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something, for long on a machine that has much to do."""
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)
