"""The service under bodies that are made to be slow: other clients' waiting time, and memory.

The server runs in another process; the bodies are sent by a third, so that building and sending
them does not delay the measurement.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread

import httpx
import psutil

from bench.service import served

ROUNDS = 3
ATTACKERS = 4
_MAX_BYTES = 29_000_000
_HEALTH_SECONDS = 0.005  # between two checks
_JSON = {"Content-Type": "application/json"}

MEANING = {
    "stall_health_ms_max": (
        "longest `/health` while another client sends bodies of up to 29 MB: unknown fields, bad "
        "content parts, deep and wide JSON, one long string",
        "at most 100",
    ),
    "stall_health_ms_median": ("the same, median", ""),
    "stall_health_ms_several_max": (
        f"longest with {ATTACKERS} such clients at once",
        "at most 100",
    ),
    "stall_health_ms_several_median": ("the same, median", ""),
    "stall_health_ms_idle_max": ("longest `/health` for as long, with nothing sent", ""),
    "stall_memory_mb": ("resident memory afterwards, less than before", "at most 50"),
    "keep_alive_ms": ("an answer on a connection that is kept alive, median", "at most 5"),
}


def measure() -> dict[str, float]:
    """Every number by name."""
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (url, server):
        address = url.removesuffix("/v1")
        _send_from_another_process(url, ATTACKERS)  # what is loaded and allocated once
        before = server.memory_info().rss
        start = time.perf_counter()
        with _health_checks(address) as attacked:
            _send_from_another_process(url, 1)
        seconds = time.perf_counter() - start
        with _health_checks(address) as attacked_by_several:
            _send_from_another_process(url, ATTACKERS)
        after = _settled_memory(server)
        with _health_checks(address) as idle:
            time.sleep(seconds)
        keep_alive = _keep_alive_seconds(address)
    return {
        "stall_health_ms_max": 1000 * max(attacked),
        "stall_health_ms_median": 1000 * median(attacked),
        "stall_health_ms_several_max": 1000 * max(attacked_by_several),
        "stall_health_ms_several_median": 1000 * median(attacked_by_several),
        "stall_health_ms_idle_max": 1000 * max(idle),
        "stall_memory_mb": (after - before) / 1e6,
        "keep_alive_ms": 1000 * keep_alive,
    }


def hostile_bodies() -> Iterator[tuple[str, bytes]]:
    """Paths and bodies, each made to be slow in another way."""
    responses, chat = "/responses", "/chat/completions"
    fields = b",".join(b'"f%d":1' % n for n in range(1_500_000))
    yield responses, b"{" + fields + b"}"
    yield responses, b'{"input":"a cat","interleave":{' + fields + b"}}"
    yield (
        responses,
        b'{"input":"a cat","metadata":{' + fields[: fields.index(b'"f49000"') - 1] + b"}}",
    )
    parts = b",".join([b'{"type":"input_file"}'] * 300_000)
    yield responses, b'{"input":[{"role":"user","content":[' + parts + b"]}]}"
    few = b",".join([b'{"type":"input_file"}'] * 15_000)
    yield responses, b'{"input":[{"role":"user","content":[' + few + b"]}]}"
    yield chat, b'{"messages":[{"role":"user","content":[' + few + b"]}]}"
    yield responses, b'{"input":[' + b",".join([b"{}"] * 20_000) + b"]}"
    yield responses, b'{"input":"a cat","tools":[' + b",".join([b"1"] * 45_000) + b"]}"
    yield responses, b'{"input":' + b"[" * 1_000 + b"]" * 1_000 + b"}"
    yield responses, b"[" * _MAX_BYTES
    yield responses, b'{"input":"' + b"x" * _MAX_BYTES + b'"}'
    yield responses, b'{"input":"' + b"\\u0041" * (_MAX_BYTES // 6) + b'"}'
    emoji = "\N{SNOWMAN WITHOUT SNOW}\N{SNOWBOARDER}".encode()  # in memory, 4 bytes a character
    yield responses, b'{"input":"' + b"x" * (_MAX_BYTES - 100) + emoji + b'"}'
    yield responses, b'{"input":"' + b"x " * (_MAX_BYTES // 2 - 50) + emoji + b'"}'
    yield responses, b'{"' + b"x" * _MAX_BYTES + b'":1}'
    yield chat, b'{"messages":[{"role":"user","content":"' + b"![" * (_MAX_BYTES // 2) + b'"}]}'
    image = b"data:image/png;base64," + b"A" * (_MAX_BYTES - 1_000)
    yield (
        responses,
        (
            b'{"input":[{"role":"user","content":[{"type":"input_text","text":"a cat"},'
            b'{"type":"input_image","image_url":"' + image + b'"}]}]}'
        ),
    )


def send_bodies(url: str, attackers: int) -> None:
    """Send every body `ROUNDS` times, by so many clients at once; none of them may be taken."""
    bodies = list(hostile_bodies())

    def attack(first: int) -> None:
        with httpx.Client(timeout=120) as client:
            for path, body in (bodies[first:] + bodies[:first]) * ROUNDS:
                status = client.post(url + path, content=body, headers=_JSON).status_code
                if not 400 <= status < 500:
                    raise RuntimeError(f"{path}: {body[:60]!r} was answered with {status}")

    with ThreadPoolExecutor(attackers) as threads:
        list(threads.map(attack, range(attackers)))


def _send_from_another_process(url: str, attackers: int) -> None:
    code = f"from bench.hostile_clients import send_bodies; send_bodies({url!r}, {attackers})"
    subprocess.run([sys.executable, "-c", code], check=True)


@contextmanager
def _health_checks(address: str) -> Iterator[list[float]]:
    """Seconds that each answer of `/health` took while the context was open."""
    seconds: list[float] = []
    done = Event()

    def check() -> None:
        with httpx.Client(timeout=120) as client:
            while not done.wait(_HEALTH_SECONDS):
                start = time.perf_counter()
                client.get(f"{address}/health").raise_for_status()
                seconds.append(time.perf_counter() - start)

    thread = Thread(target=check)
    thread.start()
    try:
        yield seconds
    finally:
        done.set()
        thread.join()


def _settled_memory(server: psutil.Process) -> int:
    """Bytes that are resident once the last requests have ended."""
    time.sleep(2)
    return int(server.memory_info().rss)


def _keep_alive_seconds(address: str, count: int = 100) -> float:
    async def measure() -> list[float]:
        seconds = []
        async with httpx.AsyncClient() as client:
            for _ in range(count):
                start = time.perf_counter()
                (await client.get(f"{address}/v1/models")).raise_for_status()
                seconds.append(time.perf_counter() - start)
        return seconds

    return median(asyncio.run(measure()))
