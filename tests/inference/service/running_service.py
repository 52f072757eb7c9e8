"""A service in a thread or a process, with the sketch world's agents or with others."""

import asyncio
import base64
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import httpx
import openai

from assets.benchmarks.report import render_runs
from assets.core.profile import load_profile
from inference.backends.providers.settings import BudgetSettings
from inference.generation.requests import IN_USE, RequestedAgents
from inference.http.auth import Keys
from inference.http.server import listening_socket
from inference.roles import BackendError, Roles
from inference.service.app import ServiceServer, make_app, open_service
from inference.service.request_manager import RequestManager
from inference.service.settings import ServiceSettings
from schemas import FoundryError
from warehouse import EncodedImage, Home

SNOWMAN = "Show how to build a snowman in 4 steps"
REDRAWN = "Show in 4 pictures how to build a snowman"  # 3 rejected attempts with the default seed
HOUSE = "A red house beside a tree"
TLS = ssl.create_default_context()  # once: to read certificates takes longer than a request
OWN_EVENTS = {"Interleave-Events": "true"}  # the header that asks for `interleave.*`


@dataclass
class FixedResolver:
    """Resolves every request to the same roles, and critics to their own."""

    roles: Roles
    by_critic: dict[str, Roles] = field(default_factory=dict)

    async def resolve(self, agents: RequestedAgents = IN_USE) -> Roles:
        if agents == IN_USE:
            return self.roles
        if agents.critic not in self.by_critic:
            raise BackendError(f"no critic {agents.critic} here")
        return self.by_critic[agents.critic]

    async def critics(self) -> list[str]:
        return list(self.by_critic)

    async def check(self) -> None:
        pass


class Barrier:
    """Blocks calls until it is opened."""

    def __init__(self) -> None:
        self.opened, self.waiting, self.cancelled = threading.Event(), 0, 0

    async def wait(self) -> None:
        self.waiting += 1
        try:
            while not self.opened.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1


class BlockedPlanner:
    """Plans when the barrier is open."""

    def __init__(self, planner: Any, barrier: Barrier) -> None:
        self._planner, self._barrier = planner, barrier
        self.backend, self.model = planner.backend, planner.model

    async def plan(self, request):
        await self._barrier.wait()
        return await self._planner.plan(request)


class CountingGenerator:
    """Records its calls; after `free` of them it waits at the barrier."""

    max_reference_images = 1

    def __init__(self, generator: Any, barrier: Barrier | None = None, free: int = 0) -> None:
        self._generator, self._barrier, self._free = generator, barrier, free
        self.backend, self.model, self.calls = generator.backend, generator.model, []

    async def generate(self, prompt, images, seed):
        if self._barrier and len(self.calls) >= self._free:
            await self._barrier.wait()
        self.calls.append((prompt, seed))
        return await self._generator.generate(prompt, images, seed)


def sketch_roles(home: Home, **replaced) -> Roles:
    """The sketch world's roles, some of them replaced."""
    return replace(load_profile("sketch").build(home), **replaced)


def blocked_roles(home: Home) -> tuple[Barrier, Roles]:
    """A barrier, and roles whose planner waits at it."""
    barrier = Barrier()
    return barrier, sketch_roles(home, planner=BlockedPlanner(sketch_roles(home).planner, barrier))


def held_roles(home: Home) -> tuple[Barrier, Roles]:
    """A barrier, and roles whose generator, which counts its calls, waits after two of them."""
    barrier, roles = Barrier(), sketch_roles(home)
    return barrier, replace(roles, generator=CountingGenerator(roles.generator, barrier, free=2))


@dataclass(frozen=True)
class RunningServer:
    """A server of ours, asked by OpenAI's client or in plain HTTP."""

    url: str

    def client(self, retries: int = 0, key: str = "none") -> openai.OpenAI:
        http, url = openai.DefaultHttpxClient(verify=TLS), f"{self.url}/v1"
        return openai.OpenAI(base_url=url, api_key=key, max_retries=retries, http_client=http)

    def get(self, path: str, **more) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, verify=TLS, **more)

    def post(self, path: str, **more) -> httpx.Response:
        return httpx.post(self.url + path, timeout=60, verify=TLS, **more)

    def metrics(self) -> dict[str, float]:
        """Every number that Prometheus would read."""
        lines = self.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), 60)


@dataclass(frozen=True)
class RunningService(RunningServer):
    """A running service."""

    manager: RequestManager
    server: ServiceServer

    def stop(self) -> None:
        self.server.should_exit = True


@contextmanager
def running_service(
    home: Home,
    roles: Roles | None = None,
    keys: tuple[str, ...] = (),
    by_critic: dict[str, Roles] | None = None,
    budget: BudgetSettings | None = None,
    **settings,
) -> Iterator[RunningService]:
    """A service, stopped at the end as SIGTERM stops it."""
    profile, render = load_profile("sketch"), partial(render_runs, home)
    resolver = FixedResolver(roles or profile.build(home), by_critic or {})
    started: Future[tuple[RequestManager, ServiceServer]] = Future()

    async def main(listener) -> None:
        chosen = ServiceSettings(**{"grace_seconds": 0} | settings)
        async with open_service(home, resolver, profile.limits, chosen) as manager:
            app = make_app(manager, profile.loop, Keys(keys), render, budget)
            server = ServiceServer(app, manager)
            started.set_result((manager, server))
            await server.serve(sockets=[listener])

    def work(listener) -> None:
        try:
            asyncio.run(main(listener))
        except FoundryError as error:
            started.set_exception(error)

    with listening_socket("127.0.0.1", 0) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=work, args=(listener,))
        thread.start()
        manager, server = started.result(60)
        try:
            yield RunningService(address, manager, server)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def serving(home: object, *more: str) -> Iterator[tuple[subprocess.Popen, openai.OpenAI]]:
    """`interleave serve` as a process, on a free port, and a client of it."""
    command = [sys.executable, "-m", "dagster_project.cli.app", "serve"]
    options = ["--home", str(home), "--port", "0", *more]
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    try:
        lines = iter(process.stderr.readline, "")
        address = re.search(r"http://\S+/v1", next(lines))[0]
        next(line for line in lines if line.startswith("ready"))
        yield process, openai.OpenAI(base_url=address, api_key="none", max_retries=0)
    finally:
        process.kill()
        process.communicate()


def raw_request(path: str, body: object, length: int | None = None, **headers: str) -> bytes:
    """A POST of JSON as bytes on a connection; `length`: that it claims to have."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Host": "127.0.0.1", "Content-Type": "application/json"} | headers
    fields["Content-Length"] = str(len(content) if length is None else length)
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + content


def decode_image(text: str) -> EncodedImage:
    """An image in base64."""
    return EncodedImage(base64.b64decode(text))


def images_of(response) -> list[EncodedImage]:
    """A response's images, in order."""
    return [
        decode_image(item.result)
        for item in response.output
        if item.type == "image_generation_call"
    ]


def data_uri(image: EncodedImage) -> str:
    return f"data:{image.mime};base64,{base64.b64encode(image.data).decode()}"


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a response, in OpenAI's shape and without details of our code."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in response.text and ".py" not in response.text
    return error


def wait_until(
    condition: Callable[[], object], seconds: float = 60, seen: Callable[[], object] | None = None
) -> None:
    """Wait for a condition, with much time for a busy machine; `seen`: what a failure shows."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"the condition was not met in time: {seen() if seen else ''}")
        time.sleep(0.02)
