"""Our images server over a tiny random pipeline: what batches gain, and what a request costs.

The server is the real one, with one replica on a Ray of its own. Run: `python -m
bench.images_server`.
"""

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import uvicorn
from openai import AsyncOpenAI

from inference.backends import torch_cpu_shim
from inference.images_server.app import make_app
from inference.images_server.models import ServableImageModel, find_served
from inference.images_server.ray_replicas import deployed
from inference.images_server.settings import ImagesServerSettings

CLIENTS = 16
BATCH = 8
SECONDS = 10.0
SINGLES = 100
MOST_SECONDS_TO_START = 300.0
TINY = """
models:
  tiny:
    title: Tiny
    backend: diffusers
    model: {folder}
    pipeline: Flux2KleinPipeline
    can: [text, edit, references]
    together: texts
    defaults: {{steps: 4, guidance: 1.0, size: 64x64}}
    licence: none
"""

MEANING = {
    "images_batched_per_second": (
        f"pictures a second of a tiny FLUX.2-klein (64x64, 4 steps), {CLIENTS} clients, drawn "
        f"{BATCH} at once",
        "",
    ),
    "images_one_by_one_per_second": ("the same, each picture by itself", ""),
    "images_overhead_ms_per_request": (
        "of a request that is alone, outside the model: client, HTTP, Ray, PNG and base64",
        "",
    ),
}


def measure() -> dict[str, float]:
    """Every number by name."""
    with tempfile.TemporaryDirectory() as folder:
        model = _tiny(Path(folder))
        with _server(model, batch=BATCH) as url:
            batched = asyncio.run(_rate(url))
        with _server(model, batch=1, gather_seconds=0) as url:
            one_by_one = asyncio.run(_rate(url))
            overhead = asyncio.run(_overhead(url))
    return {
        "images_batched_per_second": batched,
        "images_one_by_one_per_second": one_by_one,
        "images_overhead_ms_per_request": overhead * 1000,
    }


def _tiny(folder: Path) -> ServableImageModel:
    torch_cpu_shim.install()  # before anything imports diffusers
    from tests.inference.diffusers import tiny

    tiny.build("Flux2KleinPipeline", folder / "pipeline")
    registry = folder / "tiny.yaml"
    registry.write_text(TINY.format(folder=folder / "pipeline"), "utf-8")
    return find_served("tiny", registry)


async def _rate(url: str) -> float:
    """Pictures a second with all clients at work."""
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        await asyncio.gather(*(_draw(client) for _ in range(CLIENTS)))  # connections are open now
        begun, done = time.perf_counter(), 0

        async def worker() -> None:
            nonlocal done
            while time.perf_counter() - begun < SECONDS:
                await _draw(client)
                done += 1

        await asyncio.gather(*(worker() for _ in range(CLIENTS)))
        return done / (time.perf_counter() - begun)


async def _overhead(url: str) -> float:
    """Seconds per request, less those that the server's own metrics say were the model's."""
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        await _draw(client)
        begun, model = time.perf_counter(), _model_seconds(url)
        for _ in range(SINGLES):
            await _draw(client)
        whole, model = time.perf_counter() - begun, _model_seconds(url) - model
        return (whole - model) / SINGLES


async def _draw(client: AsyncOpenAI) -> None:
    await client.images.generate(prompt="a red cat")


def _model_seconds(url: str) -> float:
    lines = httpx.get(url.replace("/v1", "/metrics")).text.splitlines()
    name = "interleave_images_model_seconds_sum "
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


@contextmanager
def _server(model: ServableImageModel, **more: float) -> Iterator[str]:
    settings = ImagesServerSettings(device="cpu", port=0, **more)  # type: ignore[arg-type]
    with deployed(model, settings, "bench") as fleet:
        app = make_app(model, fleet, settings)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield _address(server)
        finally:
            server.should_exit = True
            thread.join()


def _address(server: uvicorn.Server) -> str:
    """Once it is ready to draw."""
    deadline = time.monotonic() + MOST_SECONDS_TO_START
    while time.monotonic() < deadline:
        time.sleep(0.2)
        if server.started:
            host, port = server.servers[0].sockets[0].getsockname()[:2]
            if httpx.get(f"http://{host}:{port}/ready").is_success:
                return f"http://{host}:{port}/v1"
    raise TimeoutError("the server does not become ready")


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
