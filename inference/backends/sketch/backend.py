"""The backend `sketch`: the embedded world plays all four roles: no network, no weights, no GPU.

Everything is deterministic and takes a few milliseconds of computation a call, but a second the
first time, and more for a long request. It is computed in one thread: the event loop is free for
others meanwhile, and several threads would only compete for the interpreter.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import Any, ParamSpec, TypeVar

from schemas.trajectories import Role
from warehouse import EncodedImage, Home

from ...roles import Plan, PlanRequest, RequestScope, Score, Verdict
from ...sketch_world import critic, generator, planner, scorer, understanding
from ...sketch_world.settings import SketchSettings
from ..backend import Backends, BackendSettings, register

P = ParamSpec("P")
T = TypeVar("T")


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "sketch")


os.register_at_fork(after_in_child=_thread.cache_clear)


async def _compute(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run `work` in the thread of the sketch world."""
    return await asyncio.get_running_loop().run_in_executor(_thread(), lambda: work(*args, **named))


class SketchPlanner:
    backend = "sketch"

    @cached_property
    def model(self) -> str:
        return planner.model_name()

    async def plan(self, request: PlanRequest) -> Plan:
        """Raises UnusableAnswerError if the request names nothing the sketch world can draw."""
        return await _compute(planner.write_plan, request)


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
        return await _compute(generator.draw, prompt, images, seed, self._settings)


class SketchCritic:
    backend = "sketch"

    def __init__(self, settings: SketchSettings | None = None) -> None:
        self._rates = (settings or SketchSettings()).critic
        self.model = critic.model_name(self._rates)

    async def judge(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str, prompt: str
    ) -> Verdict:
        return await _compute(critic.judge, before, after, instruction, prompt, self._rates)


class SketchScorer:
    backend = "sketch"

    def __init__(self, settings: SketchSettings | None = None) -> None:
        self._noise = (settings or SketchSettings()).scorer_noise
        self.model = scorer.model_name(self._noise)

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        return await _compute(scorer.grade, before, after, instruction, self._noise)


@register
class SketchBackend(SketchSettings, BackendSettings):
    """The embedded world's rates and sizes."""

    backend = "sketch"
    summary = "The embedded world's rates and sizes"
    plays = ("planner", "generator", "critic", "scorer")

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        return {
            "planner": SketchPlanner(),
            "generator": SketchGenerator(self),
            "critic": SketchCritic(self),
            "scorer": SketchScorer(self),
        }
