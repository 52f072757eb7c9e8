"""Overhead and throughput of our provider clients, compared with the bare SDK.

The provider is another process that answers every chat with the same verdict after a fixed time.
"""

import asyncio
import json
import multiprocessing
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from aiohttp import web
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from inference.backends.factory import Backends
from inference.backends.openai.backend import chat_arguments
from inference.backends.providers.chat import CompletionRequest
from inference.backends.providers.structured import CompletionResult
from inference.calls.retry import RetryingCaller
from inference.roles import Critic, Verdict
from inference.settings import Limits
from warehouse import EncodedImage, Home

LATENCY_SECONDS = 0.1
CONCURRENCY = (1, 16, 256)
SECONDS, FAULT_SECONDS = 3.0, 20.0
OVERHEAD_CALLS = 400
REPEATS = 3
FAULT_SHARE, SLOTS = 0.2, 16
GOAL = "Draw a meadow with a red house at the bottom left."

MEANING = {
    "providers_overhead_ms_per_call": (
        "CPU of a verdict through our `openai` backend, less that of the bare client sending the "
        f"same request (best of {REPEATS}, alternating)",
        "",
    ),
    **{
        f"providers_throughput_share_{concurrency}": (
            f"verdicts a second of a provider that takes {LATENCY_SECONDS * 1000:.0f} ms, as a "
            f"share of the ideal, {concurrency} at once",
            "",
        )
        for concurrency in CONCURRENCY
    },
    **{
        f"providers_bare_throughput_share_{concurrency}": (
            f"the same of the bare client, {concurrency} at once",
            "",
        )
        for concurrency in CONCURRENCY
    },
    "providers_faulty_share": (
        f"verdicts a second when {FAULT_SHARE:.0%} of all calls fail (429, 500, a cut connection, "
        f"garbled JSON), of what the other calls allow; {SLOTS} at once, with retries",
        ">= 0.8",
    ),
}

_VERDICT = {"reasoning": "fine", "previous_step_success": True, "refine_prompt": ""}

Ask = Callable[[], Awaitable[object]]


def measure() -> dict[str, float]:
    """Every number by name."""
    values: dict[str, float] = {}
    with running(_serve, 0.0, 0.0) as url:
        values["providers_overhead_ms_per_call"] = _overhead(url) * 1000
    with running(_serve, LATENCY_SECONDS, 0.0) as url:
        for concurrency in CONCURRENCY:
            ideal = concurrency / LATENCY_SECONDS
            ours = _rate(_ours(url), concurrency)
            bare = _rate(_bare(url), concurrency)
            values[f"providers_throughput_share_{concurrency}"] = ours / ideal
            values[f"providers_bare_throughput_share_{concurrency}"] = bare / ideal
        fair = _rate(_retried(url), 2 * SLOTS, FAULT_SECONDS)
    with running(_serve, LATENCY_SECONDS, FAULT_SHARE) as url:
        faulty = _rate(_retried(url), 2 * SLOTS, FAULT_SECONDS)
    values["providers_faulty_share"] = faulty / ((1 - FAULT_SHARE) * fair)
    return values


def _overhead(url: str) -> float:
    """CPU seconds per call of our client, without those of the SDK."""
    ours, bare = [], []
    for _ in range(REPEATS):
        ours.append(_cpu(_ours(url)))
        bare.append(_cpu(_bare(url)))
    return (min(ours) - min(bare)) / OVERHEAD_CALLS


def _cpu(make: Callable[[], Ask]) -> float:
    """CPU seconds of calls one after another."""

    async def calls() -> float:
        ask = make()
        await ask()
        started = time.process_time()
        for _ in range(OVERHEAD_CALLS):
            await ask()
        return time.process_time() - started

    return asyncio.run(calls())


def _rate(make: Callable[[], Ask], concurrency: int, seconds: float = SECONDS) -> float:
    """Answers per second with so many concurrent calls."""

    async def calls() -> float:
        ask, done = make(), 0
        await asyncio.gather(*(ask() for _ in range(concurrency)))  # connections are open now
        started = time.perf_counter()

        async def worker() -> None:
            nonlocal done
            while time.perf_counter() - started < seconds:
                await ask()
                done += time.perf_counter() - started < seconds

        await asyncio.gather(*(worker() for _ in range(concurrency)))
        return done / seconds

    return asyncio.run(calls())


def _ours(url: str) -> Callable[[], Ask]:
    critic, image = _critic(url), EncodedImage.white((192, 192))
    return lambda: lambda: critic.judge(image, image, GOAL, "")


def _retried(url: str) -> Callable[[], Ask]:
    """A verdict as the engine requests it: with a slot per try, and waits between tries."""
    judge = _ours(url)()
    limits = Limits(agents=SLOTS, tries=20, backoff_seconds=0.05)

    def ready() -> Ask:
        caller = RetryingCaller(limits)

        async def ask() -> object:
            outcome = await caller.call("critic", Verdict, judge)
            if outcome.error:
                raise outcome.error
            return outcome.answer

        return ask

    return ready


def _critic(url: str) -> Critic:
    settings = {
        "endpoints": [{"url": f"{url}/v1", "concurrency": max(CONCURRENCY)}],
        "critic": {"model": "m"},
    }
    roles = {"planner": "sketch", "generator": "sketch", "critic": "openai", "scorer": "sketch"}
    backends = Backends.model_validate({"roles": roles, "openai": settings})
    return backends.build(Home("memory://bench")).critic


def _bare(url: str) -> Callable[[], Ask]:
    """The request of our critic, prepared once, through the SDK alone."""
    arguments = _chat_arguments(_critic(url))

    def connected() -> Ask:
        http = DefaultAsyncHttpxClient()  # ours, so that it is not closed after its event loop
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http)
        return lambda: client.chat.completions.create(**arguments)

    return connected


def _chat_arguments(critic: Critic) -> dict[str, object]:
    """The SDK's arguments for a verdict, recorded by a client that sends nothing."""

    class RecordingClient:
        async def complete(self, request: CompletionRequest) -> CompletionResult:
            self.arguments = chat_arguments(request)
            return CompletionResult(json.dumps(_VERDICT))

    client, image = RecordingClient(), EncodedImage.white((192, 192))
    critic._client = client  # type: ignore[attr-defined]
    asyncio.run(critic.judge(image, image, GOAL, ""))
    return client.arguments


def completion(answer: dict[str, Any]) -> bytes:
    """The body of a response of the chat API, whose message is a JSON object."""
    message = {"role": "assistant", "content": json.dumps(answer)}
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020},
    }
    return json.dumps(body).encode()


@contextmanager
def running(serve: Callable[..., None], *arguments: object) -> Iterator[str]:
    """The URL of a server in a process of its own; `serve` gets a pipe for its port first."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=serve, args=(there, *arguments), daemon=True)
    server.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        server.terminate()
        server.join()


def serve_routes(port: Connection, routes: Sequence[web.AbstractRouteDef]) -> None:
    """Answer on a free port, which is sent, until the process is stopped."""

    async def serve() -> None:
        app = web.Application(client_max_size=2**26)
        app.add_routes(routes)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        port.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(serve())


def _serve(port: Connection, latency: float, fault_share: float) -> None:
    body, chance = completion(_VERDICT), random.Random(3)

    def failed(request: web.Request) -> web.Response:
        match chance.randrange(4):
            case 0:
                return web.Response(status=429, headers={"Retry-After": "0.2"})
            case 1:
                return web.Response(status=500)
            case 2 if request.transport:
                request.transport.close()
        return web.Response(body=body[:-20], content_type="application/json")

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(latency)
        if chance.random() < fault_share:
            return failed(request)
        return web.Response(body=body, content_type="application/json")

    serve_routes(port, [web.post("/v1/chat/completions", answer)])
