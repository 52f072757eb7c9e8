"""A replica: one model in memory that draws compatible requests together."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from schemas import BadImageError

from ..backends.diffusers.generation_spec import GenerationSpec
from ..backends.diffusers.pipeline_runner import ImageExceedsMemory
from ..engine.batching import Batcher
from ..roles import UnusableAnswerError
from .models import ServableImageModel


@dataclass(frozen=True)
class DrawnImages:
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
class DrawRejected:
    """Why this model cannot draw this request, now or later."""

    reason: str


Outcome = DrawnImages | DrawRejected


@dataclass(frozen=True)
class _Asked:
    drawing: GenerationSpec
    shape: tuple[object, ...]


class Replica:
    """Loads a model and draws with it; Ray Serve starts it in a process of its own.

    Raises:
        BackendError: the model cannot be loaded.
    """

    def __init__(
        self, model: ServableImageModel, device: str, batch: int, gather_seconds: float
    ) -> None:
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._drawer = model.load(device, batch)
        self._batcher: Batcher[_Asked, DrawnImages] = Batcher(
            self._work, batch, gather_seconds, kind=lambda asked: asked.shape
        )

    async def draw(self, drawing: GenerationSpec) -> Outcome:
        """One picture, drawn together with others of its shape. Cancelled, it is not drawn."""
        try:
            shape = await asyncio.to_thread(drawing.shape)  # decodes all pictures
            return await self._batcher.ask(_Asked(drawing, shape))
        except (UnusableAnswerError, BadImageError, ImageExceedsMemory) as error:
            return DrawRejected(str(error))

    def check_health(self) -> None:
        """Asked by Ray Serve, which replaces a replica that raises."""
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_initialized():
            torch.cuda.mem_get_info()  # raises once the GPU has failed a kernel of this process

    def _work(
        self, asked: Sequence[_Asked], given_up: Callable[[], bool]
    ) -> list[DrawnImages | Exception]:
        begun = perf_counter()
        drawn = self._drawer.draw([each.drawing for each in asked], given_up)
        seconds = perf_counter() - begun
        return [
            each
            if isinstance(each, Exception)
            else DrawnImages(each.data, seconds, len(asked), self._name)
            for each in drawn
        ]
