"""Latency of a single request: drawing ahead of verdicts beside the sequential loop."""

import asyncio
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from inference.events import AttemptJudged, PlanReady
from inference.generation.agent_resolver import ResolvedRoles
from inference.generation.requests import GenerationOptions, GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.roles import Plan, PlanRequest, PlanStep, Roles, Score, Verdict
from inference.settings import Limits
from warehouse import EncodedImage, Home

STEPS, STORIES = 25, 8
SECONDS = 0.1  # of the generator, and of the critic
PLANNER_SECONDS = 0.05
ACCEPTANCE = 0.8

MEANING = {
    "telling_acceptance": (
        f"share of pictures accepted, {STORIES} stories of {STEPS} steps, one after the other; "
        f"generator and critic take {SECONDS * 1000:.0f} ms each",
        "0.8",
    ),
    "telling_ratio_ideal": (
        "time of a story with perfect overlap, relative to the sequential loop's: each attempt "
        "costs a verdict, each refusal a draw more",
        "",
    ),
    "telling_ratio": (
        "time of a story drawn ahead, relative to the sequential loop's",
        "<= 1.1 x ideal",
    ),
    "telling_wasted_draws_per_story": ("draws begun ahead and not needed", ""),
    "telling_first_event_ms": ("from the planner's answer to the first event, median", "<= 50"),
}


@dataclass
class Simulated:
    """Every role at a fixed pace; a critic that accepts at random, the same for every run."""

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
class Told:
    """What a story took: seconds behind its plan, attempts, refusals, draws not needed."""

    seconds: float
    attempts: int
    refusals: int
    wasted: int
    first_event: float


def measure() -> dict[str, float]:
    """Every number by name."""
    plain = [asyncio.run(_told(seed, draw_ahead=False)) for seed in range(STORIES)]
    ahead = [asyncio.run(_told(seed, draw_ahead=True)) for seed in range(STORIES)]
    attempts, refusals = sum(t.attempts for t in ahead), sum(t.refusals for t in ahead)
    # The first picture and the last verdict of a story overlap with nothing.
    perfect = SECONDS * (attempts + refusals + STORIES)
    sequential = SECONDS * 2 * attempts
    return {
        "telling_acceptance": 1 - refusals / attempts,
        "telling_ratio_ideal": perfect / sequential,
        "telling_ratio": sum(t.seconds for t in ahead) / sum(t.seconds for t in plain),
        "telling_wasted_draws_per_story": sum(t.wasted for t in ahead) / STORIES,
        "telling_first_event_ms": 1000 * sorted(t.first_event for t in ahead)[STORIES // 2],
    }


async def _told(seed: int, draw_ahead: bool) -> Told:
    player = Simulated()
    rules = GenerationOptions(seed=seed, t_max=20, draw_ahead=draw_ahead)
    request = GenerationRequest("a long story", rules=rules)
    verdicts, first_event = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        async with GenerationRunner(Home(folder), Limits()) as teller:
            cast = ResolvedRoles(Roles(player, player, player, player))
            async for event in teller.tell(request, cast):
                if isinstance(event, PlanReady):
                    first_event = time.perf_counter() - player.planned_at
                if isinstance(event, AttemptJudged):
                    verdicts.append(event.verdict.accepted)
            seconds = time.perf_counter() - player.planned_at
    wasted = getattr(event, "wasted_draws", 0)
    return Told(seconds, len(verdicts), verdicts.count(False), wasted, first_event)
