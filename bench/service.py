"""The service under load: many streams at once, our own time per attempt, memory over days.

The server runs in another process; this one has its clients.
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
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import psutil

from inference.http.server import listening_socket

STREAMS = 100
REQUESTS, WARM = 2_000, 1_000
SHORT_TEXTS = (
    "A red house",
    "A tree beside a pond",
    "A yellow sun over a house",
    "A cat and a flower",
)
LONG_TEXT = "Show how to build a snowman in 4 steps"
PROFILE = """
name: bench
description: The sketch world's teachers behind the service
roles: {planner: sketch, generator: sketch, critic: sketch, scorer: sketch}
pack: sketchbook
sizes: {demo: 1}
service: {agents: profile, running: 16, waiting: 1000, per_key: 1000, logs: {level: warning}}
"""
CLIENTS = 8  # concurrent requests where our own time is measured

MEANING = {
    "service_stream_errors": (f"of {STREAMS} concurrent streams of 4 steps", "0"),
    "service_streams_seconds": ("until the last of them ended", ""),
    "service_first_event_ms": (
        "until the first event, median of them (most wait in the queue)",
        "",
    ),
    "service_overhead_ms_median": (
        f"wall time of a stream per attempt, without its models' (50 ms per draw and 50 ms per "
        f"verdict, sequential), {CLIENTS} streams at a time",
        "",
    ),
    "service_overhead_ms_p95": ("the same, of the slowest streams", ""),
    "service_cpu_ms_per_attempt": ("CPU time of the server meanwhile, all included", ""),
    "service_memory_mb_warm": (f"resident memory after {WARM} requests", ""),
    "service_memory_mb": (f"resident memory after {REQUESTS} requests", "the same"),
}


@dataclass(frozen=True)
class StreamResult:
    """What a client measured of one stream; times in seconds."""

    first_event: float
    total: float
    attempts: int
    completed: bool


def measure() -> dict[str, float]:
    """Every number by name."""
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (url, server):
        streams = asyncio.run(_streams(url, [LONG_TEXT] * STREAMS, STREAMS))
        errors = sum(not each.completed for each in streams)
        memory = [_memory_after(url, server, count) for count in (WARM, REQUESTS - WARM)]
    return {
        "service_stream_errors": errors,
        "service_streams_seconds": max(each.total for each in streams),
        "service_first_event_ms": 1000 * median(each.first_event for each in streams),
        **_overhead(),
        "service_memory_mb_warm": memory[0],
        "service_memory_mb": memory[1],
    }


def _memory_after(url: str, server: psutil.Process, count: int) -> float:
    """Megabytes of the server after `count` more requests."""
    asyncio.run(_streams(url, [SHORT_TEXTS[n % len(SHORT_TEXTS)] for n in range(count)], 32))
    return float(server.memory_info().rss / 1e6)


def _overhead() -> dict[str, float]:
    command = [sys.executable, "-m", "bench.service"]
    with tempfile.TemporaryDirectory() as folder, _started(command, folder) as (url, server):
        asyncio.run(_streams(url, [LONG_TEXT] * CLIENTS, CLIENTS))
        before = sum(server.cpu_times()[:2])
        results = asyncio.run(_streams(url, [LONG_TEXT] * 10 * CLIENTS, CLIENTS))
        used = sum(server.cpu_times()[:2]) - before
    overheads = [1000 * (each.total / each.attempts - 0.1) for each in results]
    return {
        "service_overhead_ms_median": median(overheads),
        "service_overhead_ms_p95": quantiles(overheads, n=20)[-1],
        "service_cpu_ms_per_attempt": 1000 * used / sum(each.attempts for each in results),
    }


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """URL and process of `interleave serve` on the sketch world."""
    profile = folder / "bench.yaml"
    profile.write_text(PROFILE)
    with listening_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "dagster_project.cli.app", "serve"]
    command += ["--profile", str(profile), "--home", str(folder / "home"), "--port", str(port)]
    with _started(command, str(folder)) as started:
        yield started


@contextmanager
def _started(command: list[str], folder: str) -> Iterator[tuple[str, psutil.Process]]:
    """A server that prints its URL on standard error; stopped at the end."""
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


async def _streams(url: str, texts: list[str], concurrency: int) -> list[StreamResult]:
    limits = httpx.Limits(max_connections=concurrency)
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:
        slots = asyncio.Semaphore(concurrency)

        async def one(text: str, number: int) -> StreamResult:
            async with slots:
                return await _stream(client, url, text, number)

        return list(await asyncio.gather(*(one(text, n) for n, text in enumerate(texts))))


async def _stream(client: httpx.AsyncClient, url: str, text: str, seed: int) -> StreamResult:
    body = {
        "model": "interleave",
        "input": text,
        "stream": True,
        "interleave": {"seed": seed, "draw_ahead": False},
    }
    start, first, attempts, completed = time.perf_counter(), 0.0, 0, False
    headers = {"Interleave-Events": "true"}
    async with client.stream("POST", f"{url}/responses", json=body, headers=headers) as response:
        async for kind in _event_types(response):
            first = first or time.perf_counter() - start
            attempts += kind == "interleave.attempt.judged"
            completed |= kind == "response.completed"
    return StreamResult(first, time.perf_counter() - start, max(attempts, 1), completed)


async def _event_types(response: httpx.Response) -> AsyncIterator[str]:
    """Types of the events, without parsing them."""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            yield line.removeprefix("event: ")


def serve_simulated() -> None:
    """A service whose models take a fixed time and no CPU, until SIGTERM."""
    from assets.benchmarks.report import render_runs
    from assets.core.profile import load_profile
    from inference.service.app import serve
    from inference.service.settings import ServiceSettings
    from warehouse import Home

    profile, home = load_profile("sketch"), Home.from_env()
    settings = ServiceSettings.model_validate({"port": 0, "logs": {"level": "warning"}})
    limits = profile.limits.model_copy(update={"generator": 64, "agents": 64})
    serve(
        home, _SimulatedAgents(), profile.loop, limits, settings, _print, partial(render_runs, home)
    )


class _SimulatedAgents:
    """Resolves every request to simulated roles; see `bench/speculation.py`."""

    async def __aenter__(self) -> "_SimulatedAgents":
        from bench.speculation import Simulated
        from inference.roles import Roles

        model: Any = Simulated(seconds=0.05, steps=4, planner_seconds=0)
        self._roles = Roles(model, model, model, model)
        return self

    async def __aexit__(self, *error: object) -> None: ...

    async def resolve(self, agents: object = None) -> Any:
        return self._roles

    async def check(self) -> None:
        """Simulated models always answer."""


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    serve_simulated()
