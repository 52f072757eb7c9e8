"""Draws rewritten prompts and grades the images: bounded, with a timeout, each request once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from inference.engine.ensemble import score_with
from inference.engine.hashing import stable_hash
from inference.engine.retry import RetryingCaller
from inference.roles import Generator, Score, Scorer, qualified_name
from schemas.trajectories import Role
from warehouse import EncodedImage, ImageStore

from .reward import Grades
from .settings import RewardSettings

T = TypeVar("T")


@dataclass(frozen=True)
class RedrawRequest:
    """An image to generate.

    Attributes:
        origin: sha256 of the image to edit; a white canvas means from scratch, as in the loop.
        goal: the plan's prompt of the step, which the image is graded against.
    """

    origin: str
    goal: str
    prompt: str


@dataclass(frozen=True)
class RedrawResult:
    """The sha256 of the new image, and its grades."""

    image: str
    grades: Grades


class RedrawCache:
    """Draws and scores for all rollouts.

    Equal requests share one image, while it is being drawn and after. A failure is shared by those
    that wait for it; later requests try again.
    """

    def __init__(
        self, generator: Generator, scorer: Scorer, images: ImageStore, settings: RewardSettings
    ) -> None:
        self._generator, self._scorer, self._images = generator, scorer, images
        self._seed = settings.seed
        self._caller = RetryingCaller(settings.limits)
        self._tasks: dict[str, asyncio.Task[RedrawResult]] = {}

    async def get(self, request: RedrawRequest) -> RedrawResult:
        """The image and its grades.

        Raises:
            Exception: any error of generator, scorer or image store.
        """
        key = self._key(request)
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._draw_and_grade(request))
            task.add_done_callback(partial(self._forget_failure, key))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the images that are being drawn."""
        pending = [task for task in self._tasks.values() if not task.done()]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _draw_and_grade(self, request: RedrawRequest) -> RedrawResult:
        before = await asyncio.to_thread(self._load_origin, request.origin)
        sources = (before,) if before else ()
        draw = partial(self._generator.generate, request.prompt, sources, self._seed)
        image = await self._call("generator", draw)
        sha256 = await asyncio.to_thread(self._images.put, image)

        async def grade(scorer: Scorer) -> Score:
            return await self._call("scorer", partial(scorer.score, before, image, request.goal))

        score = (await score_with(self._scorer, grade)).score
        return RedrawResult(sha256, Grades(score.semantics, score.quality))

    async def _call(self, role: Role, function: Callable[[], Awaitable[T]]) -> T:
        outcome = await self._caller.call(role, function)
        if outcome.error is not None:
            raise outcome.error
        assert outcome.answer is not None  # RetryingCaller has checked it
        return outcome.answer

    def _load_origin(self, sha256: str) -> EncodedImage | None:
        """The image before; None for the canvas that rows have where there was none."""
        image = self._images.get(sha256)
        return None if image.is_white else image

    def _key(self, request: RedrawRequest) -> str:
        backends = qualified_name(self._generator), qualified_name(self._scorer)
        return stable_hash(backends, request.origin, request.goal, request.prompt, self._seed)

    def _forget_failure(self, key: str, task: asyncio.Task[RedrawResult]) -> None:
        if task.cancelled() or task.exception():
            del self._tasks[key]
