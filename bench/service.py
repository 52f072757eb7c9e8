"""The service under load: many streams at once, our own time per attempt, memory over days.

The server runs in a process of its own; this one is its clients.
"""

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import psutil

from inference.http.server import listening_socket

STREAMS = 100
REQUESTS, WARM = 2_000, 1_000
SHORT = ("A red house", "A tree beside a pond", "A yellow sun over a house", "A cat and a flower")
STORY = "Show how to build a snowman in 4 steps"
PROFILE = """
name: bench
description: The sketch world's teachers behind the service
roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
pack: sketchbook
sizes: {demo: 1}
service: {agents: profile, running: 16, waiting: 1000, per_key: 1000, logs: {level: warning}}
"""
CROWD = 8  # stories at a time, where our own time is measured

MEANING = {
    "service_stream_errors": (f"of {STREAMS} stories of 4 steps, all streamed at once", "0"),
    "service_streams_seconds": ("until the last of them was over", ""),
    "service_first_event_ms": ("to the first event, median of them (most wait in the queue)", ""),
    "service_overhead_ms_median": (
        f"wall time of a streamed story per attempt, less its models' (fixed: 50 ms a draw, "
        f"50 ms a verdict, one after the other), {CROWD} stories at a time",
        "",
    ),
    "service_overhead_ms_p95": ("the same, of the slowest stories", ""),
    "service_cpu_ms_per_attempt": ("CPU of the server meanwhile, everything included", ""),
    "service_memory_mb_warm": (f"resident memory after {WARM} requests", ""),
    "service_memory_mb": (f"resident memory after {REQUESTS} requests", "the same"),
}


@dataclass(frozen=True)
class Heard:
    """What a client heard of one story; times in seconds."""

    first: float
    whole: float
    attempts: int
    completed: bool


def measure() -> dict[str, float]:
    """Every number by name."""
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as (url, server):
        crowd = asyncio.run(_streams(url, [STORY] * STREAMS, STREAMS))
        errors = sum(not each.completed for each in crowd)
        memory = [_after(url, server, count) for count in (WARM, REQUESTS - WARM)]
    return {
        "service_stream_errors": errors,
        "service_streams_seconds": max(each.whole for each in crowd),
        "service_first_event_ms": 1000 * median(each.first for each in crowd),
        **_overhead(),
        "service_memory_mb_warm": memory[0],
        "service_memory_mb": memory[1],
    }


def _after(url: str, server: psutil.Process, count: int) -> float:
    """Megabytes of the server after so many requests more."""
    asyncio.run(_streams(url, [SHORT[n % len(SHORT)] for n in range(count)], 32))
    return float(server.memory_info().rss / 1e6)


def _overhead() -> dict[str, float]:
    command = [sys.executable, "-m", "bench.service"]
    with tempfile.TemporaryDirectory() as folder, _started(command, folder) as (url, server):
        asyncio.run(_streams(url, [STORY] * CROWD, CROWD))
        before = sum(server.cpu_times()[:2])
        stories = asyncio.run(_streams(url, [STORY] * 10 * CROWD, CROWD))
        used = sum(server.cpu_times()[:2]) - before
    ours = [1000 * (each.whole / each.attempts - 0.1) for each in stories]
    return {
        "service_overhead_ms_median": median(ours),
        "service_overhead_ms_p95": quantiles(ours, n=20)[-1],
        "service_cpu_ms_per_attempt": 1000 * used / sum(each.attempts for each in stories),
    }


@contextmanager
def _served(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    profile = folder / "bench.yaml"
    profile.write_text(PROFILE)
    with listening_socket("127.0.0.1", 0) as door:
        port = door.getsockname()[1]
    command = [sys.executable, "-m", "dagster_project.cli.app", "serve"]
    command += ["--profile", str(profile), "--home", str(folder / "home"), "--port", str(port)]
    with _started(command, str(folder)) as started:
        yield started


@contextmanager
def _started(command: list[str], folder: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server that says its address on standard error and is stopped at the end."""
    environment = {**os.environ, "INTERLEAVE_HOME": f"{folder}/home"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr
        try:
            url = next(
                found[0] for line in server.stderr if (found := re.findall(r"http\S+/v1", line))
            )
            while httpx.get(url.removesuffix("/v1") + "/ready").status_code != 200:
                time.sleep(0.1)
            yield url, psutil.Process(server.pid)
        finally:
            server.terminate()


async def _streams(url: str, texts: list[str], at_once: int) -> list[Heard]:
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:
        room = asyncio.Semaphore(at_once)

        async def one(text: str, number: int) -> Heard:
            async with room:
                return await _story(client, url, text, number)

        return list(await asyncio.gather(*(one(text, n) for n, text in enumerate(texts))))


async def _story(client: httpx.AsyncClient, url: str, text: str, seed: int) -> Heard:
    body = {
        "model": "interleave",
        "input": text,
        "stream": True,
        "interleave": {"seed": seed, "draw_ahead": False},
    }
    begun, first, attempts, completed = time.perf_counter(), 0.0, 0, False
    async with client.stream("POST", f"{url}/responses", json=body) as response:
        async for kind in _kinds(response):
            first = first or time.perf_counter() - begun
            attempts += kind == "interleave.attempt.judged"
            completed |= kind == "response.completed"
    return Heard(first, time.perf_counter() - begun, max(attempts, 1), completed)


async def _kinds(response: httpx.Response) -> AsyncIterator[str]:
    """Types of the events, without reading the pictures in them."""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            yield line.removeprefix("event: ")


def serve_simulated() -> None:
    """A service whose models take a fixed time and no CPU, until it is told to end."""
    from assets.core.profile import load_profile
    from inference.service.server import serve
    from inference.service.settings import ServiceSettings
    from warehouse import Home

    profile, home = load_profile("sketch"), Home.from_env()
    settings = ServiceSettings.model_validate({"port": 0, "logs": {"level": "warning"}})
    limits = profile.limits.model_copy(update={"generator": 64, "agents": 64})
    serve(home, _SimulatedAgents(), profile.loop, limits, settings, _say)


class _SimulatedAgents:
    """Resolves every request to simulated roles; see `bench/speculation.py`."""

    async def __aenter__(self) -> "_SimulatedAgents":
        from bench.speculation import Simulated
        from inference.generation.agent_resolver import ResolvedRoles
        from inference.roles import Roles

        model: Any = Simulated(seconds=0.05, steps=4, planner_seconds=0)
        self._roles = ResolvedRoles(Roles(model, model, model, model))
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def resolve(self, critic: str | None = None) -> Any:
        return self._roles


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    serve_simulated()
