"""A row of the sketch world with its ground truth, answers to it, and a faulty generator."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from inference.backends.sketch.backend import SketchCritic, SketchPlanner, SketchScorer
from inference.calls.ask import ModelCalls
from inference.calls.call_index import CallIndex
from inference.roles import Generator, Roles, Scorer, UnusableAnswerError
from inference.sketch_world import generator as sketch_generator
from inference.sketch_world import scorer as sketch_scorer
from inference.sketch_world.settings import MistakeRates, SketchSettings
from schemas.curation import Evaluation
from schemas.training import CRITIC
from schemas.trajectories import ModelCallRow
from training.rewards.critic import CriticReward, CriticState
from training.rewards.reward import RewardSettings
from training.rewards.service import RewardRequest, RewardService
from warehouse import EncodedImage, Home

GOAL = "Paint a meadow with a green tree in the center."
EXACT = "Paint a meadow with a green tree in the center."
WRONG = "Paint a meadow with a red house in the center."
FLAWLESS = SketchSettings(
    mistakes=MistakeRates(
        place={"exact": 0, "relative": 0, "open": 0},
        colour={"named": 0, "implied": 0},
        collateral={"kept": 0, "unasked": 0},
        kind=0,
        nothing=0,
        blemish=0,
        crooked=0,
    )
)
QUICK = RewardSettings(draw_timeout_seconds=5, tries=1, backoff_seconds=0)


def answer(verdict: bool, prompt: str = "") -> str:
    body = json.dumps({"previous_step_success": verdict, "refine_prompt": prompt})
    return f"<think>compared</think>\n<answer>{body}</answer>"


@dataclass
class FaultyGenerator:
    """Draws like the sketch generator, except for prompts that name a fault.

    With the seed `worse_at` it draws something else.
    """

    backend: str = "faulty"
    model: str = "1"
    calls: list[tuple] = field(default_factory=list)
    active: int = 0
    max_active: int = 0
    hiccups: int = 0
    worse_at: int | None = None

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        self.calls.append((prompt, tuple(image.sha256 for image in images), seed))
        self.active += 1
        self.max_active = max(self.max_active, self.active)
        try:
            await asyncio.sleep(0.01)
            return await self._draw(prompt, images, seed)
        finally:
            self.active -= 1

    async def _draw(self, prompt: str, images: Sequence[EncodedImage], seed: int) -> EncodedImage:
        if "refuse" in prompt:
            raise UnusableAnswerError("not that")
        if "hang" in prompt:
            await asyncio.sleep(3600)
        if "broken" in prompt:
            return EncodedImage(b"no image at all")
        if "nothing" in prompt:
            return None
        if "hiccup" in prompt and self.hiccups == 0:
            self.hiccups += 1
            raise ConnectionError("gone for a moment")
        if seed == self.worse_at:
            prompt = WRONG
        return sketch_generator.draw(prompt, images, seed, FLAWLESS)


class RewardWorld:
    """A lake with a canvas, a good and a bad image of the goal, and services over it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.canvas = home.images.put(EncodedImage.of(Image.new("RGB", (192, 192), "white")))
        self.journal = home.journal("rollouts", "run-1")
        self.generator = FaultyGenerator()
        self._open: dict[str, ExitStack] = {}

    def service(
        self,
        settings: RewardSettings = QUICK,
        run: str = "run-1",
        scorer: Scorer | None = None,
        generator_of: Callable[[str], Generator] | None = None,
        **other: Any,
    ) -> RewardService:
        """A service of a run; an earlier one of the same run has ended."""
        self.end(run)
        stack = self._open[run] = ExitStack()
        journal = stack.enter_context(self.home.journal("rollouts", run))
        scorer = scorer or SketchScorer(FLAWLESS)
        roles = Roles(SketchPlanner(), self.generator, SketchCritic(), scorer)
        calls = stack.enter_context(ModelCalls(self.home, CRITIC, run, roles, settings.limits))
        generator_of = generator_of or (lambda _row: self.generator)
        rewards = CriticReward(calls, generator_of, settings, **other)
        return RewardService(rewards, run, journal)

    def end(self, *runs: str) -> None:
        for run in runs or list(self._open):
            self._open.pop(run, ExitStack()).close()

    def ledger(self) -> list[ModelCallRow]:
        """The calls of `run-1`."""
        return CallIndex.read(self.home.journal(CRITIC, "run-1")).ledger()

    def state(self, truth: bool, rewritten: str = "", **other: object) -> CriticState:
        """A row whose image shows the goal, or the wrong object in the right place."""
        grades = self._grades(GOAL if truth else WRONG)
        return CriticState(
            origin_prompt=GOAL,
            rewritten_prompt=rewritten,
            origin_image=str(other.get("origin_image", self.canvas)),
            evaluation=Evaluation(success=truth, **grades),
        )

    def request(
        self, response: str, truth: bool = False, row: str = "row-1", step: int = 1, **other: object
    ) -> RewardRequest:
        state = self.state(truth, **other)
        return RewardRequest(step=step, row_id=row, response=response, state=state)

    def _grades(self, prompt: str) -> dict[str, float]:
        image = sketch_generator.draw(prompt, (), 0, FLAWLESS)
        score = sketch_scorer.grade(None, image, GOAL)
        return {"semantics": score.semantics, "quality": score.quality}
