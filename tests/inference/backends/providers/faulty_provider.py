"""A provider of our own in a thread: OpenAI's and Google's APIs over real HTTP, in any weather.

The sketch world answers, so that whole shards can be told through it. A share of the requests meets
bad weather instead; which ones is a matter of a seed and of the order in which they come.
"""

import asyncio
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from inference.roles import PlanRequest, UnusableAnswerError
from inference.sketch_world.critic import SketchCritic
from inference.sketch_world.generator import SketchGenerator
from inference.sketch_world.planner import SketchPlanner
from inference.sketch_world.scorer import SketchScorer
from tests.inference.backends.providers.answer_shapes import (
    Gemini,
    Images,
    OpenAI,
    gemini_parts,
    image_request,
    is_white,
    openai_parts,
)
from tests.inference.backends.providers.batch_server import Batches
from warehouse import EncodedImage

KEY = "sk-very-secret-0123456789"
FAULTS = ("throttle", "error", "hang", "reset", "cut", "garble", "refuse", "empty", "slow")

_REQUEST = re.compile(r"Request:\n(.*?)\n\n(?:Rules|First find)", re.DOTALL)
_BANK = re.compile(r'The list is named "(.*?)"')
_GOAL = re.compile(r"Goal of the step:\n(.*?)\n\n", re.DOTALL)
_WORDING = re.compile(r"in this attempt:\n(.*?)\n\n", re.DOTALL)


@dataclass
class Weather:
    """`faults`: kind -> share of the requests that meet it."""

    faults: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    latency: float = 0.0
    retry_after: float = 0.2

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def next(self) -> str | None:
        drawn = self._rng.random()
        for kind, share in self.faults.items():
            if drawn < share:
                return kind
            drawn -= share
        return None


@dataclass
class Provider:
    """What the server saw. `questions` counts every distinct request that was answered well."""

    url: str
    weather: Weather
    requests: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0
    scripts: list[Any] = field(default_factory=list)
    terms: dict[str, list[Any]] = field(default_factory=dict)  # bank -> what is proposed for it
    polls: int = 2  # looks at a batch before it is done
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)


@contextmanager
def provider(weather: Weather | None = None) -> Iterator[Provider]:
    """A server on a free port until the block ends."""
    ready = threading.Event()
    seen = Provider("", weather or Weather())
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        app = web.Application(client_max_size=2**26)
        handler = _Handler(seen)
        app.router.add_post("/v1/chat/completions", handler.chat)
        app.router.add_post("/{version}/models/{model}", handler.gemini)
        app.router.add_post("/v1/images/{kind}", handler.images)
        handler.batches = Batches(handler, seen)
        app.router.add_routes(handler.batches.routes())
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        seen.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
        ready.set()
        await stop.wait()
        await runner.cleanup()

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield seen
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


class _Handler:
    batches: "Batches"

    def __init__(self, seen: Provider) -> None:
        self._seen = seen
        self._planner, self._critic = SketchPlanner(), SketchCritic()
        self._scorer, self._generator = SketchScorer(), SketchGenerator()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.headers.get("authorization") != f"Bearer {KEY}":
            error = {"message": f"Incorrect API key: {KEY}", "code": "invalid_api_key"}
            return web.json_response({"error": error}, status=401)
        texts, pictures = openai_parts(body["messages"])
        return await self._weathered(request, body, OpenAI(body["model"]), texts, pictures)

    async def gemini(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["model"].endswith(":batchGenerateContent"):
            return await self.batches.gemini(request)
        body = await request.json()
        if request.headers.get("x-goog-api-key") != KEY:
            details = [{"reason": "API_KEY_INVALID"}]
            error = {"code": 400, "message": "API key not valid", "details": details}
            return web.json_response({"error": error}, status=400)
        texts, pictures = gemini_parts(body["contents"])
        drawing = "responseModalities" in body.get("generationConfig", {})
        return await self._weathered(request, body, Gemini(drawing), texts, pictures)

    async def images(self, request: web.Request) -> web.StreamResponse:
        body, pictures = await image_request(request)
        return await self._weathered(request, body, Images(), [body["prompt"]], pictures)

    async def _weathered(
        self,
        request: web.Request,
        body: Any,
        api: Any,
        texts: list[str],
        pictures: list[EncodedImage],
    ) -> web.StreamResponse:
        seen = self._seen
        key = json.dumps(body, sort_keys=True)
        seen.requests[key] += 1
        seen.bodies.append(body)
        kind = seen.scripts.pop(0) if seen.scripts else seen.weather.next()
        seen.met[kind or "fine"] += 1
        seen.busy += 1
        seen.busiest = max(seen.busiest, seen.busy)
        try:
            response = await self._response(kind, request, api, texts, pictures)
        finally:
            seen.busy -= 1
        if kind in (None, "slow"):
            seen.answered[key] += 1
        return response

    async def _response(
        self,
        kind: Any,
        request: web.Request,
        api: Any,
        texts: list[str],
        pictures: list[EncodedImage],
    ) -> web.StreamResponse:
        weather = self._seen.weather
        await asyncio.sleep(weather.latency * (10 if kind == "slow" else 1))
        match kind:
            case "throttle":
                headers = {"Retry-After": str(weather.retry_after)}
                return web.json_response(api.error(429, "slow down"), status=429, headers=headers)
            case "error":
                return web.json_response(api.error(500, "our fault"), status=500)
            case "hang":
                await asyncio.sleep(3600)
            case "reset":
                assert request.transport is not None
                request.transport.abort()
            case "cut":
                whole = json.dumps(await self._answer(api, texts, pictures))
                return web.Response(text=whole[: len(whole) // 2], content_type="application/json")
            case "garble":
                return web.json_response(api.text("Sure! Here you are: {{{ reasoning = ]["))
            case "refuse":
                return web.json_response(api.refusal())
            case "empty":
                return web.json_response(api.empty())
            case str() if kind not in (None, "slow"):  # what exactly is to be said
                return web.json_response(api.text(kind))
        return web.json_response(await self._answer(api, texts, pictures))

    async def _answer(self, api: Any, texts: list[str], pictures: list[EncodedImage]) -> Any:
        try:
            return await self._played(api, texts, pictures)
        except UnusableAnswerError as error:
            return api.text(f"I cannot: {error}")

    async def _played(self, api: Any, texts: list[str], pictures: list[EncodedImage]) -> Any:
        text = "\n".join(texts)
        if getattr(api, "drawing", False):
            return api.picture(await self._generator.generate(texts[-1], pictures[-1:], 7))
        if wanted := _REQUEST.search(text):
            plan = await self._planner.plan(PlanRequest(wanted[1], tuple(pictures)))
            steps = [vars(step) for step in plan.steps]
            return api.json({"reasoning": plan.reasoning, "execution_plan": steps})
        if bank := _BANK.search(text):
            return api.json({"reasoning": "", "terms": self._seen.terms.get(bank[1], [])})
        before = None if is_white(pictures[0]) else pictures[0]
        goal = _GOAL.search(text)[1]  # type: ignore[index]
        if "four grades" in text:
            return api.json(
                {"reasoning": "", **vars(await self._scorer.score(before, pictures[1], goal))}
            )
        wording = _WORDING.search(text)
        verdict = await self._critic.judge(before, pictures[1], goal, wording[1] if wording else "")
        answer = {
            "previous_step_success": verdict.accepted,
            "refine_prompt": verdict.refined_prompt,
        }
        return api.json({"reasoning": verdict.reasoning, **answer})
