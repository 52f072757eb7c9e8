"""A replica: one model in memory, which generates compatible images in batches."""

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
class DrawnImage:
    """An image (PNG).

    Args:
        seconds: that its batch took.
        batch: size of that batch.
        replica: that generated it, as `host:process`.
    """

    data: bytes
    seconds: float
    batch: int
    replica: str


@dataclass(frozen=True)
class DrawRejected:
    """Why this model cannot generate this image, now or later."""

    reason: str


ReplicaResult = DrawnImage | DrawRejected


@dataclass(frozen=True)
class _BatchItem:
    spec: GenerationSpec
    batch_key: tuple[object, ...]


class Replica:
    """Loads a model and generates with it; Ray Serve starts it in a separate process.

    Raises:
        BackendError: the model cannot be loaded.
    """

    def __init__(
        self, model: ServableImageModel, device: str, batch: int, gather_seconds: float
    ) -> None:
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._model = model.load(device, batch)
        self._batcher: Batcher[_BatchItem, DrawnImage] = Batcher(
            self._draw_batch, batch, gather_seconds, group_by=lambda item: item.batch_key
        )

    async def draw(self, spec: GenerationSpec) -> ReplicaResult:
        """One image, in a batch with compatible ones; skipped when cancelled in time."""
        try:
            key = await asyncio.to_thread(spec.batch_key)  # decodes all input images
            return await self._batcher.submit(_BatchItem(spec, key))
        except (UnusableAnswerError, BadImageError, ImageExceedsMemory) as error:
            return DrawRejected(str(error))

    def check_health(self) -> None:
        """Called by Ray Serve, which replaces a replica that raises."""
        torch = sys.modules.get("torch")
        if torch and torch.cuda.is_initialized():
            torch.cuda.mem_get_info()  # raises once the GPU has failed a kernel of this process

    def _draw_batch(
        self, items: Sequence[_BatchItem], is_cancelled: Callable[[], bool]
    ) -> list[DrawnImage | Exception]:
        start = perf_counter()
        results = self._model.draw([item.spec for item in items], is_cancelled)
        seconds = perf_counter() - start
        return [
            result
            if isinstance(result, Exception)
            else DrawnImage(result.data, seconds, len(items), self._name)
            for result in results
        ]
