"""A pipeline in memory that draws requests in batches."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from typing import Any

from PIL import Image

from schemas import BadImageError
from warehouse import EncodedImage
from warehouse.storage import first_line

from ...roles import BackendError, RetryableError, UnusableAnswerError
from .. import torch_cpu_shim
from .generation_spec import GenerationSpec, PipelineArguments
from .model_selection import SelectedModel
from .registry import LoRA, PictureModel

Drawn = EncodedImage | Exception


class ImageExceedsMemory(BackendError):  # noqa: N818 - reads as what it is
    """A single picture needs more memory than there is."""


@dataclass(frozen=True)
class LoadedPipeline:
    """A pipeline in memory; `in_use` lets one thread at a time draw with it."""

    pipeline: Any
    in_use: threading.Lock = field(default_factory=threading.Lock)


class PipelineRunner:
    """Draws with one pipeline; any thread may ask. See `load_pipeline_runner`.

    Args:
        most: pictures drawn at once, at most; the painter learns to draw fewer where memory does
            not suffice.
    """

    def __init__(self, name: str, model: PictureModel, loaded: LoadedPipeline, most: int) -> None:
        self._name, self._pipeline, self._most = name, loaded.pipeline, most
        self._words = frozenset(signature(loaded.pipeline.__call__).parameters)
        self._speech = PipelineArguments(name, model, self._words)
        self._in_use = loaded.in_use

    def draw(
        self, drawings: Sequence[GenerationSpec], given_up: Callable[[], bool] = lambda: False
    ) -> list[Drawn]:
        """The picture of each drawing, or the error that it alone is to blame for.

        Args:
            given_up: asked after every step; true ends all drawings where they are.
        """
        with self._in_use:
            drawn: dict[int, Drawn] = dict(self._refused(drawings))
            open_places = [place for place in range(len(drawings)) if place not in drawn]
            for group in self._groups(open_places, drawings):
                pictures = self._in_batches([drawings[place] for place in group], given_up)
                drawn |= zip(group, pictures, strict=True)
        return [drawn[place] for place in range(len(drawings))]

    def _refused(self, drawings: Sequence[GenerationSpec]) -> Iterator[tuple[int, Exception]]:
        for place, drawing in enumerate(drawings):
            try:
                self._speech.check(drawing)
                drawing.shape()  # decodes all pictures
            except (UnusableAnswerError, BadImageError) as error:
                yield place, error

    def _groups(
        self, places: Iterable[int], drawings: Sequence[GenerationSpec]
    ) -> Iterable[list[int]]:
        """Places of drawings that one call of the pipeline can draw, whatever their number."""
        groups: dict[object, list[int]] = {}
        for place in places:
            drawing = drawings[place]
            key = drawing.shape() if self._speech.batches(drawing) else place
            groups.setdefault(key, []).append(place)
        return groups.values()

    def _in_batches(
        self, drawings: Sequence[GenerationSpec], given_up: Callable[[], bool]
    ) -> Iterator[Drawn]:
        queue = deque(drawings)
        while queue:  # the size of a batch may fall meanwhile
            batch = [queue.popleft() for _ in range(min(self._most, len(queue)))]
            yield from self._paint(batch, given_up)

    def _paint(
        self, drawings: Sequence[GenerationSpec], given_up: Callable[[], bool]
    ) -> list[Drawn]:
        """Draw a batch; one that fails is drawn in halves, until its culprit is alone."""
        if given_up():
            return [RetryableError("nobody waits for this picture any more")] * len(drawings)
        try:
            return list(self._call(drawings, given_up))
        except Exception as error:  # pipelines raise errors of all kinds
            fault = self._fault(error, drawings[0])
        if len(drawings) == 1:
            return [fault]
        half = len(drawings) // 2
        if isinstance(fault, ImageExceedsMemory):
            self._most = min(self._most, half)
            _free_memory()
        return [
            picture
            for part in (drawings[:half], drawings[half:])
            for picture in self._paint(part, given_up)
        ]

    def _call(
        self, drawings: Sequence[GenerationSpec], given_up: Callable[[], bool]
    ) -> Iterator[EncodedImage]:
        import torch

        # On the CPU a seed means the same noise, whatever the device.
        noise = [torch.Generator("cpu").manual_seed(drawing.seed) for drawing in drawings]
        arguments = self._speech.arguments(drawings) | {"generator": noise}
        if "callback_on_step_end" in self._words:
            arguments["callback_on_step_end"] = _stopper(given_up)
        images = self._pipeline(**arguments).images
        for drawing, image in zip(drawings, images, strict=True):
            yield EncodedImage.of(_sized(image, drawing.size))

    def _fault(self, error: Exception, drawing: GenerationSpec) -> Exception:
        if _lacks_memory(error):
            return ImageExceedsMemory(
                f"{self._name}: a picture of {drawing.manner.size or 'the size that it chooses'} "
                f"does not fit into the memory of {self._pipeline.device} beside the weights; draw "
                "smaller ones (`size`), or take a device with more memory"
            )
        return UnusableAnswerError(f"{self._name} cannot draw this: {first_line(error)}")


def load_pipeline_runner(choice: SelectedModel, device: str, batch: int) -> PipelineRunner:
    """A painter of a model; a process keeps the weights of the last one.

    Args:
        device: auto, cpu, cuda or cuda:N.
        batch: pictures drawn at once, at most.

    Raises:
        BackendError: the weights are not there and cannot be had, or cannot be loaded.
    """
    loaded = _load(choice.model.model_dump_json(), choice.identity, device, choice.dtype)
    return PipelineRunner(choice.name, choice.model, loaded, batch)


@lru_cache(maxsize=1)
def _load(described: str, identity: str, device: str, dtype: str) -> LoadedPipeline:
    torch_cpu_shim.install()
    import torch

    _load.cache_clear()  # the weights of the last model make room first
    _free_memory()
    model = PictureModel.model_validate_json(described)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype == "auto":
        dtype = "bfloat16" if device.startswith("cuda") else "float32"
    try:
        return LoadedPipeline(_pipeline(model, getattr(torch, dtype)).to(device))
    except Exception as error:  # diffusers, safetensors and the hub raise errors of all kinds
        raise BackendError(
            f"generator {identity} cannot be loaded on {device}: {first_line(error)}{_hint(model)}"
        ) from error


def _pipeline(model: PictureModel, dtype: Any) -> Any:
    import diffusers
    from diffusers.utils.logging import disable_progress_bar

    disable_progress_bar()
    kind = getattr(diffusers, str(model.pipeline))
    pipeline = kind.from_pretrained(
        model.model, revision=model.revision, dtype=dtype, use_safetensors=True
    )
    pipeline.set_progress_bar_config(disable=True)
    if model.lora is not None:
        _adapt(pipeline, model.lora)
    return pipeline


def _adapt(pipeline: Any, lora: LoRA) -> None:
    pipeline.load_lora_weights(lora.model, revision=lora.revision, weight_name=lora.file)
    scheduler = pipeline.scheduler
    pipeline.scheduler = scheduler.from_config(scheduler.config, **lora.scheduler)


def _hint(model: PictureModel) -> str:
    if not model.gated:
        return ""
    return f"; accept the licence of {model.model} on Hugging Face and set HF_TOKEN"


def _stopper(given_up: Callable[[], bool]) -> Callable[..., dict[str, Any]]:
    def stop(pipeline: Any, step: int, timestep: Any, values: dict[str, Any]) -> dict[str, Any]:
        pipeline._interrupt = given_up()
        return values

    return stop


def _sized(image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    """Pipelines round sizes to patches, or choose their own."""
    if size is None or image.size == size:
        return image
    return image.resize(size, Image.Resampling.LANCZOS)


def _lacks_memory(error: Exception) -> bool:
    import torch

    on_cpu = "DefaultCPUAllocator" in str(error)  # torch has no type for it
    return on_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)


def _free_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
