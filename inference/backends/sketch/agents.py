"""Adapters from the sketch world's simulator (`inference.sketch_world`) to the four roles.

Everything is deterministic and takes a few milliseconds of computation a call, so no method but
`plan` suspends: a request may be long.
"""

import asyncio
from collections.abc import Sequence
from functools import cached_property

from warehouse import EncodedImage

from ...roles import Plan, PlanRequest, RequestScope, Score, Verdict
from ...sketch_world import critic, generator, planner, scorer, understanding
from ...sketch_world.settings import SketchSettings


class SketchPlanner:
    backend = "sketch"

    @cached_property
    def model(self) -> str:
        return planner.model_name()

    async def plan(self, request: PlanRequest) -> Plan:
        """Raises UnusableAnswerError if the request names nothing the sketch world can draw."""
        return await asyncio.to_thread(planner.write_plan, request)


class SketchGenerator:
    backend = "sketch"

    def __init__(self, settings: SketchSettings | None = None) -> None:
        self._settings = settings or SketchSettings()
        self.model = generator.model_name(self._settings)

    def scope(self, request: PlanRequest, plan: Plan | None = None) -> RequestScope:
        """Raises BadImageError if an image cannot be decoded."""
        return understanding.scope(request, plan)

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        return generator.draw(prompt, images, seed, self._settings)


class SketchCritic:
    backend = "sketch"

    def __init__(self, settings: SketchSettings | None = None) -> None:
        self._rates = (settings or SketchSettings()).critic
        self.model = critic.model_name(self._rates)

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        return critic.judge(before, after, instruction, prompt, self._rates)


class SketchScorer:
    backend = "sketch"

    def __init__(self, settings: SketchSettings | None = None) -> None:
        self._noise = (settings or SketchSettings()).scorer_noise
        self.model = scorer.model_name(self._noise)

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        return scorer.grade(before, after, instruction, self._noise)
