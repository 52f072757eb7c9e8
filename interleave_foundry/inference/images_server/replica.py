"""A replica: one model in memory that draws compatible requests together."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from ...schemas import BadImageError
from ..batching import Batcher
from ..diffusers.drawing import Drawing
from ..diffusers.painter import TooLarge
from ..roles import BadAnswer
from .models import ServedModel


@dataclass(frozen=True)
class Drawn:
    """A picture (PNG).

    Args:
        batch: how many were drawn together in `seconds`.
        replica: who drew it, `host:process`.
    """

    data: bytes
    seconds: float
    batch: int
    replica: str


@dataclass(frozen=True)
class NotDrawn:
    """Why this model cannot draw this request, now or later."""

    reason: str


Outcome = Drawn | NotDrawn


@dataclass(frozen=True)
class _Asked:
    drawing: Drawing
    shape: tuple[object, ...]


class Replica:
    """Loads a model and draws with it; Ray Serve starts it in a process of its own.

    Raises:
        BackendError: the model cannot be loaded.
    """

    def __init__(self, model: ServedModel, device: str, batch: int, gather_seconds: float) -> None:
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._drawer = model.load(device, batch)
        self._batcher: Batcher[_Asked, Drawn] = Batcher(
            self._work, batch, gather_seconds, kind=lambda asked: asked.shape
        )

    async def draw(self, drawing: Drawing) -> Outcome:
        """One picture, drawn together with others of its shape. Cancelled, it is not drawn."""
        try:
            shape = await asyncio.to_thread(drawing.shape)  # decodes all pictures
            return await self._batcher.ask(_Asked(drawing, shape))
        except (BadAnswer, BadImageError, TooLarge) as error:
            return NotDrawn(str(error))

    def check_health(self) -> None:
        """Asked by Ray Serve, which replaces a replica that raises."""
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_initialized():
            torch.cuda.mem_get_info()  # raises once the GPU has failed a kernel of this process

    def _work(
        self, asked: Sequence[_Asked], given_up: Callable[[], bool]
    ) -> list[Drawn | Exception]:
        begun = perf_counter()
        drawn = self._drawer.draw([each.drawing for each in asked], given_up)
        seconds = perf_counter() - begun
        return [
            each
            if isinstance(each, Exception)
            else Drawn(each.data, seconds, len(asked), self._name)
            for each in drawn
        ]
