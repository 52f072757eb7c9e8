"""Speculative draws: the next step's first image, while the critic still judges this one's.

If the critic accepts, the image is used; if not, it is discarded. A speculative draw has the
prompt, images and seed of the later one, so that the trajectory is the same with and without.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .events import ImageGenerated

# What a draw depends on: step number, and the sha256 of the generator's input images.
DrawKey = tuple[int, tuple[str, ...]]


class SpeculativeDraw:
    """At most one generator call ahead of the verdict.

    Args:
        has_free_slot: whether the call would delay no other one.
    """

    def __init__(self, has_free_slot: Callable[[], bool]) -> None:
        self._has_free_slot = has_free_slot
        self._key: DrawKey | None = None
        self._task: asyncio.Task[ImageGenerated] | None = None
        self._discarded: list[asyncio.Task[ImageGenerated]] = []

    @property
    def wasted_draws(self) -> int:
        """Draws that were begun and not needed."""
        return len(self._discarded)

    def start(self, key: DrawKey, draw: Callable[[], Coroutine[Any, Any, ImageGenerated]]) -> None:
        """Begin a draw, unless the generator is busy."""
        if self._has_free_slot():
            self._key, self._task = key, asyncio.create_task(draw())

    async def take(self, key: DrawKey) -> ImageGenerated | None:
        """The result of the speculative draw, if its key is `key`; else it is discarded.

        Raises what the draw raised.
        """
        if self._task and self._key == key:
            draw = await self._task
            self._task = None
            return draw
        self.discard()
        return None

    def discard(self) -> None:
        """Cancel the speculative draw, if there is one."""
        if self._task:
            self._task.cancel()
            self._discarded.append(self._task)
            self._task = None

    async def close(self) -> None:
        """Discard, and wait until no call is under way."""
        self.discard()
        await asyncio.gather(*self._discarded, return_exceptions=True)
