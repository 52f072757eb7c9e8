"""Drawing ahead: the next step's first picture, while the critic still looks at this one.

If the critic accepts, the picture is there at once; if not, it is thrown away. What is drawn ahead
has the prompt, the pictures and the seed that it would have had later, so that the story is the
same with and without.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .events import ImageGenerated

# What a draw follows from: step, and the pictures it is shown.
DrawKey = tuple[int, tuple[str, ...]]


class SpeculativeDraw:
    """At most one draw that nobody has asked for yet.

    Args:
        has_room: whether the generator has nothing better to do.
    """

    def __init__(self, has_room: Callable[[], bool]) -> None:
        self._has_room = has_room
        self._key: DrawKey | None = None
        self._task: asyncio.Task[ImageGenerated] | None = None
        self._dropped: list[asyncio.Task[ImageGenerated]] = []

    @property
    def wasted(self) -> int:
        """Draws that were begun and not needed."""
        return len(self._dropped)

    def begin(self, key: DrawKey, draw: Callable[[], Coroutine[Any, Any, ImageGenerated]]) -> None:
        """Draw ahead, unless the generator is busy."""
        if self._has_room():
            self._key, self._task = key, asyncio.create_task(draw())

    async def take(self, key: DrawKey) -> ImageGenerated | None:
        """What was drawn ahead, if it is what is needed now; else it is given up.

        Raises what the draw raised.
        """
        if self._task and self._key == key:
            drawn = await self._task
            self._task = None
            return drawn
        self.give_up()
        return None

    def give_up(self) -> None:
        """Throw away what is drawn ahead, if anything is."""
        if self._task:
            self._task.cancel()
            self._dropped.append(self._task)
            self._task = None

    async def close(self) -> None:
        """End what is still being drawn for nobody; no call goes on after this."""
        self.give_up()
        await asyncio.gather(*self._dropped, return_exceptions=True)
