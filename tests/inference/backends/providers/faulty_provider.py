"""A test provider in a thread: OpenAI's and Google's APIs over real HTTP, with injected faults.

The sketch world answers, so that complete shards can run through it. A share of the requests fails
instead; which ones follows from a seed and the order in which they arrive.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from inference.backends.sketch.backend import (
    SketchCritic,
    SketchGenerator,
    SketchPlanner,
    SketchScorer,
)
from inference.roles import PlanRequest, UnusableAnswerError
from tests.helpers.app_server import running_app
from tests.inference.backends.providers.api_formats import (
    Gemini,
    Images,
    OpenAI,
    Parts,
    gemini_parts,
    image_request,
    is_white,
    openai_parts,
)
from tests.inference.backends.providers.batch_server import BatchServer
from warehouse import EncodedImage

KEY = "sk-very-secret-0123456789"
FAULTS = ("throttle", "error", "hang", "reset", "cut", "garble", "refuse", "empty", "slow")

_REQUEST = re.compile(r"Request:\n(.*?)\n\n(?:Rules|First find)", re.DOTALL)
_BANK = re.compile(r'The list is named "(.*?)"')
_CRITERIA = re.compile(r"\nCriteria[^\n]*:\n(.*?)\nFor each criterion", re.DOTALL)
_CRITERION = re.compile(r"^(\d+)\. (.*)$", re.MULTILINE)
_GOAL = re.compile(r"Goal of the step:\n(.*?)\n\n", re.DOTALL)
_PROMPT = re.compile(r"in this attempt:\n(.*?)\n\n", re.DOTALL)

_QUALITY = {"naturalness": 9.0, "artifacts": 8.0}  # the sketch world needs both images for it


@dataclass
class FaultSchedule:
    """`faults`: kind -> share of the requests that fail in this way."""

    faults: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    latency: float = 0.0
    retry_after: float = 0.2

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)

    def next(self) -> str | None:
        value = self._rng.random()
        for kind, share in self.faults.items():
            if value < share:
                return kind
            value -= share
        return None


@dataclass
class Provider:
    """State of the server.

    `answered` counts the proper answers to every distinct request; `billed` the texts and images
    that a provider would bill, whether they arrive or not.
    """

    url: str
    schedule: FaultSchedule
    requests: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    billed: Counter[str] = field(default_factory=Counter)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    active: int = 0
    max_active: int = 0
    scripts: list[Any] = field(default_factory=list)
    terms: dict[str, list[Any]] = field(default_factory=dict)  # bank -> what is proposed for it
    rubric: dict[str, Any] = field(default_factory=dict)  # what is written for every request
    audit: str = ""  # the answer to every question of an auditor
    unmet: set[str] = field(default_factory=set)  # criteria that the judge says are not met
    polls: int = 2  # polls of a batch before it is done
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)


@contextmanager
def provider(schedule: FaultSchedule | None = None) -> Iterator[Provider]:
    """A server on a free port until the block ends."""
    state = Provider("", schedule or FaultSchedule())
    app = web.Application(client_max_size=2**26)
    handler = _Handler(state)
    app.router.add_post("/v1/chat/completions", handler.chat)
    app.router.add_post("/{version}/models/{model}", handler.gemini)
    app.router.add_post("/v1/images/{kind}", handler.images)
    handler.batches = BatchServer(handler, state)
    app.router.add_routes(handler.batches.routes())
    with running_app(app, handler_cancellation=True, shutdown_timeout=0.1) as state.url:
        yield state


def _billed(kind: Any, api: Any) -> str | None:
    """What a provider bills of a request; None: nothing."""
    if not getattr(api, "returns_image", False):
        return None if kind in ("throttle", "error") else "text"
    return "image" if kind in (None, "slow", "hang", "reset", "cut") else None


class _Handler:
    batches: BatchServer

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._planner, self._critic = SketchPlanner(), SketchCritic()
        self._scorer, self._generator = SketchScorer(), SketchGenerator()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if request.headers.get("authorization") != f"Bearer {KEY}":
            error = {"message": f"Incorrect API key: {KEY}", "code": "invalid_api_key"}
            return web.json_response({"error": error}, status=401)
        parts = openai_parts(body["messages"])
        return await self._respond(request, body, OpenAI(body["model"]), parts)

    async def gemini(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["model"].endswith(":batchGenerateContent"):
            return await self.batches.gemini(request)
        body = await request.json()
        if request.headers.get("x-goog-api-key") != KEY:
            details = [{"reason": "API_KEY_INVALID"}]
            error = {"code": 400, "message": "API key not valid", "details": details}
            return web.json_response({"error": error}, status=400)
        returns_image = "responseModalities" in body.get("generationConfig", {})
        parts = gemini_parts(body["contents"])
        return await self._respond(request, body, Gemini(returns_image), parts)

    async def images(self, request: web.Request) -> web.StreamResponse:
        body, images = await image_request(request)
        return await self._respond(request, body, Images(), ([body["prompt"]], images))

    async def _respond(self, request: web.Request, body: Any, api: Any, parts: Parts) -> Any:
        provider = self._provider
        key = json.dumps(body, sort_keys=True)
        provider.requests[key] += 1
        provider.bodies.append(body)
        kind = provider.scripts.pop(0) if provider.scripts else provider.schedule.next()
        provider.outcomes[kind or "ok"] += 1
        if (billed := _billed(kind, api)) is not None:
            provider.billed[billed] += 1
        provider.active += 1
        provider.max_active = max(provider.max_active, provider.active)
        try:
            response = await self._response(kind, request, api, parts)
        finally:
            provider.active -= 1
        if kind in (None, "slow"):
            provider.answered[key] += 1
        return response

    async def _response(self, kind: Any, request: web.Request, api: Any, parts: Parts) -> Any:
        schedule = self._provider.schedule
        await asyncio.sleep(schedule.latency * (10 if kind == "slow" else 1))
        match kind:
            case "throttle":
                headers = {"Retry-After": str(schedule.retry_after)}
                return web.json_response(api.error(429, "slow down"), status=429, headers=headers)
            case "error":
                return web.json_response(api.error(500, "our fault"), status=500)
            case "hang":
                await asyncio.sleep(3600)
            case "reset":
                assert request.transport is not None
                request.transport.abort()
            case "cut":
                text = json.dumps(await self.answer(api, parts))
                return web.Response(text=text[: len(text) // 2], content_type="application/json")
            case "garble":
                return web.json_response(api.text("Sure! Here you are: {{{ reasoning = ]["))
            case "refuse":
                return web.json_response(api.refusal())
            case "empty":
                return web.json_response(api.empty())
            case str() if kind not in (None, "slow"):  # a literal answer
                return web.json_response(api.text(kind))
        return web.json_response(await self.answer(api, parts))

    async def answer(self, api: Any, parts: Parts) -> Any:
        """The sketch world's answer in the format of an API."""
        try:
            return await self._sketch_answer(api, *parts)
        except UnusableAnswerError as error:
            return api.text(f"I cannot: {error}")

    async def _sketch_answer(self, api: Any, texts: list[str], images: list[EncodedImage]) -> Any:
        text = "\n".join(texts)
        if getattr(api, "returns_image", False):
            return api.image(await self._generator.generate(texts[-1], images[-1:], 7))
        if user_request := _REQUEST.search(text):
            plan = await self._planner.plan(PlanRequest(user_request[1], tuple(images)))
            steps = [vars(step) for step in plan.steps]
            return api.json({"reasoning": plan.reasoning, "execution_plan": steps})
        if bank := _BANK.search(text):
            return api.json({"reasoning": "", "terms": self._provider.terms.get(bank[1], [])})
        if "You write the checklist" in text:
            return api.json({"reasoning": "", **self._provider.rubric})
        if '{"criteria_met": true}' in text:  # the judge of UEval
            answered = "Text:\n(none)" not in text and "Images: (none)" not in text
            met = answered and not any(f"Criterion:\n{c}" in text for c in self._provider.unmet)
            return api.text(json.dumps({"criteria_met": met}))
        if "Judge one of its requests" in text:
            return api.text(self._provider.audit)
        if criteria := _CRITERIA.search(text):
            answers = [
                {"number": int(number), "met": criterion not in self._provider.unmet}
                for number, criterion in _CRITERION.findall(criteria[1])
            ]
            return api.json({"reasoning": "", "answers": answers})
        if "how well a picture is made" in text:
            return api.json({"reasoning": "", **_QUALITY})
        before = None if is_white(images[0]) else images[0]
        goal = _GOAL.search(text)[1]  # type: ignore[index]
        if "four grades" in text or "Give two grades" in text:
            grades = vars(await self._scorer.score(before, images[1], goal))
            asked = grades if "four grades" in text else ("edit_success", "over_edit")
            return api.json({"reasoning": "", **{name: grades[name] for name in asked}})
        prompt = _PROMPT.search(text)
        verdict = await self._critic.judge(before, images[1], goal, prompt[1] if prompt else "")
        answer = {"reasoning": verdict.reasoning, "previous_step_success": verdict.accepted}
        return api.json(answer | {"refine_prompt": verdict.refined_prompt})
