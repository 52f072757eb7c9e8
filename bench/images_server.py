"""Our images server over a tiny random pipeline: gain of batches, overhead of a request.

It starts a server with one replica on a local Ray.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from openai import AsyncOpenAI

from inference.backends import torch_cpu_shim
from inference.images_server.models import ImagesServerSettings, ServableImageModel, find_servable
from inference.images_server.ray_replicas import deploy
from tests.inference.images_server.served_images import served, until

CLIENTS = 16
BATCH = 8
SECONDS = 10.0
SINGLES = 100
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
        f"images a second of a tiny FLUX.2-klein (64x64, 4 steps), {CLIENTS} clients, batches "
        f"of {BATCH}",
        "",
    ),
    "images_one_by_one_per_second": ("the same in batches of 1", ""),
    "images_overhead_ms_per_request": (
        "of a single request outside the model: client, HTTP, Ray, PNG and base64",
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
    from inference.backends.diffusers import tiny

    tiny.build("Flux2KleinPipeline", folder / "pipeline")
    registry = folder / "tiny.yaml"
    registry.write_text(TINY.format(folder=folder / "pipeline"), "utf-8")
    return find_servable("tiny", registry)


async def _rate(url: str) -> float:
    """Images a second with all clients busy."""
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        await asyncio.gather(*(_draw(client) for _ in range(CLIENTS)))  # opens the connections
        start, done = time.perf_counter(), 0

        async def worker() -> None:
            nonlocal done
            while time.perf_counter() - start < SECONDS:
                await _draw(client)
                done += 1

        await asyncio.gather(*(worker() for _ in range(CLIENTS)))
        return done / (time.perf_counter() - start)


async def _overhead(url: str) -> float:
    """Seconds per request, less those in the model by the server's own metrics."""
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        await _draw(client)
        start, model = time.perf_counter(), _model_seconds(url)
        for _ in range(SINGLES):
            await _draw(client)
        total, model = time.perf_counter() - start, _model_seconds(url) - model
        return (total - model) / SINGLES


async def _draw(client: AsyncOpenAI) -> None:
    await client.images.generate(prompt="a red cat")


def _model_seconds(url: str) -> float:
    lines = httpx.get(url.replace("/v1", "/metrics")).text.splitlines()
    name = "interleave_images_model_seconds_sum "
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


@contextmanager
def _server(model: ServableImageModel, **more: float) -> Iterator[str]:
    """The address of a server that is ready."""
    settings = ImagesServerSettings(device="cpu", **more)  # type: ignore[arg-type]
    with deploy(model, settings, "bench") as replicas, served(model, replicas, settings) as server:
        until(lambda: server.get("/ready").is_success)
        yield f"{server.url}/v1"
