"""Latency of a single request: speculative draws beside the sequential loop."""

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from inference.events import AttemptJudged, PlanReady, TrajectoryFinished
from inference.generation.requests import GenerationOptions, GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.roles import Plan, PlanRequest, PlanStep, Roles, Score, Verdict
from inference.settings import Limits
from warehouse import EncodedImage, Home

STEPS, REQUESTS = 25, 8
SECONDS = 0.1  # of the generator, and of the critic
PLANNER_SECONDS = 0.05
ACCEPTANCE = 0.8

MEANING = {
    "speculation_acceptance": (
        f"share of images accepted, {REQUESTS} requests of {STEPS} steps, one after the other; "
        f"generator and critic take {SECONDS * 1000:.0f} ms each",
        "0.8",
    ),
    "speculation_ratio_ideal": (
        "time of a request with perfect overlap, relative to the sequential loop's: each attempt "
        "costs a verdict, each rejection a draw more",
        "",
    ),
    "speculation_ratio": (
        "time of a request with speculative draws, relative to the sequential loop's",
        "<= 1.1 x ideal",
    ),
    "speculation_wasted_draws_per_request": (
        "speculative draws per request that were not needed",
        "",
    ),
    "speculation_first_event_ms": ("from the planner's answer to the first event, median", "<= 50"),
}


@dataclass
class Simulated:
    """Every role at a fixed pace; the critic accepts at random, the same in every run."""

    seconds: float = SECONDS
    planner_seconds: float = PLANNER_SECONDS
    steps: int = STEPS
    backend: str = "simulated"
    model: str = "1"
    planned_at: float = 0.0

    async def plan(self, request: PlanRequest) -> Plan:
        await asyncio.sleep(self.planner_seconds)
        steps = [PlanStep(n, f"step {n}", f"do {n}", f"draw {n}") for n in range(1, self.steps + 1)]
        self.planned_at = time.perf_counter()
        return Plan(tuple(steps))

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        await asyncio.sleep(self.seconds)
        colour = random.Random(f"{prompt} {seed}").randbytes(3)
        return EncodedImage.of(Image.new("RGB", (32, 32), tuple(colour)))

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        await asyncio.sleep(self.seconds)
        accepted = random.Random(f"{instruction} {after.sha256}").random() < ACCEPTANCE
        return Verdict(accepted, "" if accepted else f"{instruction}, exactly", "")

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        return Score(10, 10, 10, 10)


@dataclass
class RequestTimes:
    """Seconds from the plan to the end and to the first event, and counts of one request."""

    seconds: float
    attempts: int
    rejections: int
    wasted_draws: int
    first_event: float


def measure() -> dict[str, float]:
    """Every number by name."""
    plain = [asyncio.run(_run(seed, draw_ahead=False)) for seed in range(REQUESTS)]
    ahead = [asyncio.run(_run(seed, draw_ahead=True)) for seed in range(REQUESTS)]
    attempts, rejections = sum(t.attempts for t in ahead), sum(t.rejections for t in ahead)
    # The first draw and the last verdict of a request overlap with nothing.
    perfect = SECONDS * (attempts + rejections + REQUESTS)
    sequential = SECONDS * 2 * attempts
    return {
        "speculation_acceptance": 1 - rejections / attempts,
        "speculation_ratio_ideal": perfect / sequential,
        "speculation_ratio": sum(t.seconds for t in ahead) / sum(t.seconds for t in plain),
        "speculation_wasted_draws_per_request": sum(t.wasted_draws for t in ahead) / REQUESTS,
        "speculation_first_event_ms": 1000 * sorted(t.first_event for t in ahead)[REQUESTS // 2],
    }


async def _run(seed: int, draw_ahead: bool) -> RequestTimes:
    model = Simulated()
    roles = Roles(model, model, model, model)
    options = GenerationOptions(seed=seed, t_max=20, draw_ahead=draw_ahead)
    request = GenerationRequest("a plan of many steps", options=options)
    verdicts: list[bool] = []
    first_event, wasted_draws = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        async with GenerationRunner(Home(folder), Limits()) as runner:
            async for event in runner.run(request, roles):
                match event:
                    case PlanReady():
                        first_event = time.perf_counter() - model.planned_at
                    case AttemptJudged(verdict=verdict):
                        verdicts.append(verdict.accepted)
                    case TrajectoryFinished():
                        wasted_draws = event.wasted_draws
            seconds = time.perf_counter() - model.planned_at
    return RequestTimes(seconds, len(verdicts), verdicts.count(False), wasted_draws, first_event)
