"""A pipeline in memory that generates images in batches."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from typing import Any

from PIL import Image

from schemas import BadImageError
from warehouse import EncodedImage
from warehouse.storage import first_line

from ...roles import BackendError, RetryableError, UnusableAnswerError
from ..model_files import device_and_dtype
from .generation_spec import GenerationSpec, PipelineArguments
from .model_selection import SelectedModel
from .registry import GeneratorModel, LoRA

DrawResult = EncodedImage | Exception


class ImageExceedsMemory(BackendError):  # noqa: N818 - reads better
    """A single image needs more memory than there is."""


@dataclass(frozen=True)
class LoadedPipeline:
    """A pipeline in memory; `lock` lets one thread at a time use it."""

    pipeline: Any
    lock: threading.Lock = field(default_factory=threading.Lock)


class PipelineRunner:
    """Generates images with one pipeline, from any thread. See `load_pipeline_runner`.

    Args:
        max_batch: the most images at once; lowered when memory does not suffice.
    """

    def __init__(
        self, name: str, model: GeneratorModel, loaded: LoadedPipeline, max_batch: int
    ) -> None:
        self._name, self._pipeline, self._max_batch = name, loaded.pipeline, max_batch
        self._parameters = frozenset(signature(loaded.pipeline.__call__).parameters)
        self._arguments = PipelineArguments(name, model, self._parameters)
        self._lock = loaded.lock

    def draw(
        self, specs: Sequence[GenerationSpec], is_cancelled: Callable[[], bool] = lambda: False
    ) -> list[DrawResult]:
        """The image of each spec, or the error that it alone causes.

        Args:
            is_cancelled: checked after every step; true ends all images where they are.
        """
        with self._lock:
            results: dict[int, DrawResult] = {}
            groups: dict[object, list[int]] = {}
            for number, spec in enumerate(specs):
                try:
                    groups.setdefault(self._group_key(number, spec), []).append(number)
                except (UnusableAnswerError, BadImageError) as error:
                    results[number] = error
            for group in groups.values():
                images = self._draw_group([specs[number] for number in group], is_cancelled)
                results |= zip(group, images, strict=True)
        return [results[number] for number in range(len(specs))]

    def _group_key(self, number: int, spec: GenerationSpec) -> object:
        """Equal for specs that one call of the pipeline can draw; raises for invalid ones."""
        self._arguments.check(spec)
        batch_key = spec.batch_key()
        return batch_key if self._arguments.can_batch(spec) else number

    def _draw_group(
        self, specs: Sequence[GenerationSpec], is_cancelled: Callable[[], bool]
    ) -> Iterator[DrawResult]:
        queue = deque(specs)
        while queue:  # the batch size may fall meanwhile
            batch = [queue.popleft() for _ in range(min(self._max_batch, len(queue)))]
            yield from self._draw_batch(batch, is_cancelled)

    def _draw_batch(
        self, specs: Sequence[GenerationSpec], is_cancelled: Callable[[], bool]
    ) -> list[DrawResult]:
        """Draw a batch; one that fails is halved until the spec that fails is alone."""
        if is_cancelled():
            return [RetryableError("the request for this image was cancelled")] * len(specs)
        try:
            return list(self._call_pipeline(specs, is_cancelled))
        except Exception as error:  # pipelines raise errors of all kinds
            translated = self._translate_error(error, specs[0])
        if len(specs) == 1:
            return [translated]
        half = len(specs) // 2
        if isinstance(translated, ImageExceedsMemory):
            self._max_batch = min(self._max_batch, half)
            _free_memory()
        first = self._draw_batch(specs[:half], is_cancelled)
        return first + self._draw_batch(specs[half:], is_cancelled)

    def _call_pipeline(
        self, specs: Sequence[GenerationSpec], is_cancelled: Callable[[], bool]
    ) -> Iterator[EncodedImage]:
        import torch

        # On the CPU a seed gives the same noise, whatever the device.
        generators = [torch.Generator("cpu").manual_seed(spec.seed) for spec in specs]
        arguments = self._arguments.arguments(specs) | {"generator": generators}
        if "callback_on_step_end" in self._parameters:
            arguments["callback_on_step_end"] = _interrupter(is_cancelled)
        images = self._pipeline(**arguments).images
        for spec, image in zip(specs, images, strict=True):
            yield EncodedImage.of(_resize(image, spec.size))

    def _translate_error(self, error: Exception, spec: GenerationSpec) -> Exception:
        if _is_out_of_memory(error):
            return ImageExceedsMemory(
                f"{self._name}: an image of {spec.params.size or 'the size that it chooses'} does "
                f"not fit into the memory of {self._pipeline.device} beside the weights; draw "
                "smaller ones (`size`), or take a device with more memory"
            )
        return UnusableAnswerError(f"{self._name} cannot draw this: {first_line(error)}")


def load_pipeline_runner(selected: SelectedModel, device: str, batch: int) -> PipelineRunner:
    """The runner of a model; a process caches the weights of the last one.

    Args:
        device: auto, cpu, cuda or cuda:N.
        batch: the most images at once.

    Raises:
        BackendError: the weights are unavailable, or cannot be loaded.
    """
    model = selected.model
    loaded = _load(model.model_dump_json(), selected.identity, device, selected.dtype)
    return PipelineRunner(selected.name, model, loaded, batch)


@lru_cache(maxsize=1)
def _load(model_json: str, identity: str, device: str, dtype_name: str) -> LoadedPipeline:
    _load.cache_clear()  # free the weights of the last model first
    _free_memory()
    model = GeneratorModel.model_validate_json(model_json)
    device, dtype = device_and_dtype(device, dtype_name)
    try:
        return LoadedPipeline(_pipeline(model, dtype).to(device))
    except Exception as error:  # diffusers, safetensors and the hub raise errors of all kinds
        raise BackendError(
            f"generator {identity} cannot be loaded on {device}: {first_line(error)}{_hint(model)}"
        ) from error


def _pipeline(model: GeneratorModel, dtype: Any) -> Any:
    import diffusers
    from diffusers.utils.logging import disable_progress_bar

    disable_progress_bar()
    pipeline = getattr(diffusers, str(model.pipeline)).from_pretrained(
        model.model, revision=model.revision, dtype=dtype, use_safetensors=True
    )
    pipeline.set_progress_bar_config(disable=True)
    if model.lora is not None:
        _add_lora(pipeline, model.lora)
    return pipeline


def _add_lora(pipeline: Any, lora: LoRA) -> None:
    pipeline.load_lora_weights(lora.model, revision=lora.revision, weight_name=lora.file)
    scheduler = pipeline.scheduler
    pipeline.scheduler = scheduler.from_config(scheduler.config, **lora.scheduler)


def _hint(model: GeneratorModel) -> str:
    if not model.gated:
        return ""
    return f"; accept the licence of {model.model} on Hugging Face and set HF_TOKEN"


def _interrupter(is_cancelled: Callable[[], bool]) -> Callable[..., dict[str, Any]]:
    def interrupt(
        pipeline: Any, step: int, timestep: Any, values: dict[str, Any]
    ) -> dict[str, Any]:
        pipeline._interrupt = is_cancelled()
        return values

    return interrupt


def _resize(image: Image.Image, size: tuple[int, int] | None) -> Image.Image:
    """The image in the requested size: pipelines round sizes to patches, or choose their own."""
    if size is None or image.size == size:
        return image
    return image.resize(size, Image.Resampling.LANCZOS)


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    on_cpu = "DefaultCPUAllocator" in str(error)  # torch has no type for it
    return on_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError)


def _free_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
