"""Drawing a rewritten prompt and grading the picture: bounded, in time, each request once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from inference.engine.ensemble import graded
from inference.engine.hashing import stable_hash
from inference.engine.retry import RetryingCaller
from inference.roles import Generator, Score, Scorer, qualified_name
from schemas.trajectories import Role
from warehouse import EncodedImage, ImageStore

from .reward import Grades
from .settings import RewardSettings

T = TypeVar("T")


@dataclass(frozen=True)
class Redraw:
    """What a picture is wanted of.

    `origin` is the sha256 of the picture it starts from; a white canvas there means from scratch,
    as in the loop. `goal` is the plan's prompt of the step, which the picture is graded against.
    """

    origin: str
    goal: str
    prompt: str


@dataclass(frozen=True)
class Redrawn:
    """The sha256 of the new picture, and its grades."""

    image: str
    grades: Grades


class RedrawCache:
    """Draws and scores on behalf of all rollouts.

    Rollouts that ask for the same picture share one drawing, while it is under way and after. A
    failure is shared by those who wait for it, and tried anew for whoever asks later.
    """

    def __init__(
        self, generator: Generator, scorer: Scorer, images: ImageStore, settings: RewardSettings
    ) -> None:
        self._generator, self._scorer, self._images = generator, scorer, images
        self._seed = settings.seed
        self._caller = RetryingCaller(settings.limits)
        self._tasks: dict[str, asyncio.Task[Redrawn]] = {}

    async def of(self, redraw: Redraw) -> Redrawn:
        """The picture and its grades.

        Raises:
            Exception: whatever generator, scorer or image store could not do, in its own words.
        """
        key = self._key(redraw)
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._make(redraw))
            task.add_done_callback(partial(self._forget_failure, key))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Give up what is under way."""
        under_way = [task for task in self._tasks.values() if not task.done()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _make(self, redraw: Redraw) -> Redrawn:
        before = await asyncio.to_thread(self._origin, redraw.origin)
        sources = (before,) if before else ()
        draw = partial(self._generator.generate, redraw.prompt, sources, self._seed)
        picture = await self._called("generator", draw)
        image = await asyncio.to_thread(self._images.put, picture)

        async def grade(scorer: Scorer) -> Score:
            return await self._called("scorer", partial(scorer.score, before, picture, redraw.goal))

        score = (await graded(self._scorer, grade)).answer
        return Redrawn(image, Grades(score.semantics, score.quality))

    async def _called(self, role: Role, ask: Callable[[], Awaitable[T]]) -> T:
        effort = await self._caller.call(role, ask)
        if effort.error is not None:
            raise effort.error
        assert effort.answer is not None  # the caller checks what comes back
        return effort.answer

    def _origin(self, sha256: str) -> EncodedImage | None:
        picture = self._images.get(sha256)
        return None if is_white(picture) else picture

    def _key(self, redraw: Redraw) -> str:
        who = qualified_name(self._generator), qualified_name(self._scorer)
        return stable_hash(who, redraw.origin, redraw.goal, redraw.prompt, self._seed)

    def _forget_failure(self, key: str, task: asyncio.Task[Redrawn]) -> None:
        if task.cancelled() or task.exception():
            del self._tasks[key]


def is_white(picture: EncodedImage) -> bool:
    """Whether it is the white canvas that stands for "nothing yet" in training rows."""
    colours = picture.image.getcolors(maxcolors=1)
    return colours is not None and colours[0][1] == (255, 255, 255)
