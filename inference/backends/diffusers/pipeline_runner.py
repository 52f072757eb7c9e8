"""The generator of the `diffusers` backend: a pipeline in memory that draws batches of images."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any

from PIL import Image

from schemas import BadImageError
from warehouse import EncodedImage
from warehouse.storage import first_line

from ...roles import BackendError, RetryableError, UnusableAnswerError
from ..model_files import device_and_dtype
from .registry import GeneratorModel, SamplingParams, SelectedModel

_CANVAS_SIZE = (1024, 1024)  # where no size is wanted


@dataclass(frozen=True)
class GenerationSpec:
    """One image to generate; `params` are complete, with all defaults applied.

    The last of `images` is edited; models with references use them all. `mask`: as large as the
    last image; white is repainted, black stays.
    """

    prompt: str
    seed: int
    params: SamplingParams
    images: tuple[EncodedImage, ...] = ()
    mask: EncodedImage | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height of the result; None: the pipeline chooses."""
        if self.params.pixels is None and self.mask is not None:
            return self.mask.image.size  # what is not repainted must stay in place
        return self.params.pixels

    def batch_key(self) -> tuple[object, ...]:
        """Equal for specs that can share a batch. Decodes all images."""
        sizes = tuple(image.image.size for image in self.images)
        return (*self.params.model_dump().values(), sizes, self.mask is None)


def white_canvas(params: SamplingParams) -> EncodedImage:
    """What a model that only edits starts from."""
    return EncodedImage.white(params.pixels or _CANVAS_SIZE)


@dataclass(frozen=True)
class PipelineArguments:
    """Validates specs for one model; makes arguments of its pipeline, which has `parameters`."""

    name: str
    model: GeneratorModel
    parameters: frozenset[str]

    def check(self, spec: GenerationSpec) -> None:
        """Reject what the model cannot do, or a part of which it would ignore.

        Raises `UnusableAnswerError`, or `BadImageError` for an image that cannot be decoded.
        """
        if reason := self._unsupported(spec) or self._ignored(spec.params):
            raise UnusableAnswerError(f"{self.name} {reason}")

    def can_batch(self, spec: GenerationSpec) -> bool:
        together = self.model.together
        return together == "pictures" or (together == "texts" and not spec.images)

    def arguments(self, specs: Sequence[GenerationSpec]) -> dict[str, Any]:
        """Arguments of the pipeline for specs of one `batch_key`, without seeds."""
        first, params = specs[0], specs[0].params
        arguments: dict[str, Any] = {
            "prompt": [spec.prompt for spec in specs],
            "num_inference_steps": params.steps,
        }
        if self.model.guided_by:
            arguments[self.model.guided_by] = params.guidance
        if "negative_prompt" in self.parameters and _uses_negative_prompt(params):
            negative = params.negative_prompt
            arguments["negative_prompt"] = None if negative is None else [negative] * len(specs)
        if first.size and "height" in self.parameters:
            width, height = first.size
            arguments |= {"width": width, "height": height}
            if "max_area" in self.parameters:  # Kontext scales any size to this many pixels
                arguments["max_area"] = width * height
            if "output_resolution" in self.parameters:  # Qwen-Image-2.1 scales references to it
                arguments["output_resolution"] = min(_CANVAS_SIZE[0], math.isqrt(width * height))
        arguments |= self._images(specs)
        return {name: value for name, value in arguments.items() if value is not None}

    def _unsupported(self, spec: GenerationSpec) -> str | None:
        can, images, mask = self.model.can, spec.images, spec.mask
        if mask is not None and "mask" not in can:
            return "takes no mask; leave it out, or name another generator"
        if not images and (mask is not None or "text" not in can):
            return "needs an image to start from, and got none"
        if mask is None and images and "edit" not in can:
            ability = "needs a mask with the image" if "mask" in can else "draws from text alone"
            return f"{ability}; name another generator to edit images"
        if mask is not None and mask.image.size != images[-1].image.size:
            sizes = "{}x{} for {}x{}".format(*mask.image.size, *images[-1].image.size)
            return f"needs a mask as large as the image, not {sizes}"
        return None

    def _ignored(self, params: SamplingParams) -> str | None:
        if params.guidance is not None and self.model.guided_by is None:
            return "takes no guidance; leave it out"
        if not (params.negative_prompt or "").strip():
            return None
        names = self.parameters
        is_distilled = self.model.guided_by != "true_cfg_scale" and "true_cfg_scale" in names
        if is_distilled or "negative_prompt" not in names:
            return "takes no negative prompt; leave it out"
        if not _uses_negative_prompt(params):
            return f"ignores a negative prompt at guidance {params.guidance}; raise that above 1"
        return None

    def _images(self, specs: Sequence[GenerationSpec]) -> dict[str, Any]:
        first = specs[0]
        if not first.images:
            return {}
        if "references" in self.model.can:
            return {"image": [image.image for image in first.images]}
        arguments = {"image": _unwrap_single([spec.images[-1].image for spec in specs])}
        if first.mask is not None:
            masks = [spec.mask.image.convert("L") for spec in specs if spec.mask]
            arguments["mask_image"] = _unwrap_single(masks)
        return arguments


def _uses_negative_prompt(params: SamplingParams) -> bool:
    """Whether each step is computed twice, for the prompt and against the negative one."""
    return params.guidance is None or params.guidance > 1


def _unwrap_single(images: list[Any]) -> Any:
    """Some pipelines take an image but no list of one."""
    return images[0] if len(images) == 1 else images


def _opaque(image: Image.Image) -> Image.Image:
    """An image on white, as models that draw transparency see their references."""
    if image.mode != "RGBA":
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


DrawResult = EncodedImage | Exception


class ImageExceedsMemory(BackendError):  # noqa: N818 - reads better
    """A single image needs more memory than there is."""


class PipelineRunner:
    """Generates images with one pipeline, from any thread; a process caches the last weights.

    `batch`: the most images at once; lowered when memory does not suffice. Raises `BackendError`:
    the weights are unavailable, or cannot be loaded.
    """

    def __init__(self, selected: SelectedModel, device: str, batch: int) -> None:
        name, model, self._max_batch = selected.name, selected.model, batch
        self._pipeline, self._lock = _load(
            model.model_dump_json(), selected.identity, device, selected.dtype, selected.offload
        )
        parameters = frozenset(signature(self._pipeline.__call__).parameters)
        self._arguments = PipelineArguments(name, model, parameters)

    def draw(
        self, specs: Sequence[GenerationSpec], is_cancelled: Callable[[], bool] = lambda: False
    ) -> list[DrawResult]:
        """The image of each spec, or the error that it alone causes.

        `is_cancelled` is checked after every step; true ends all images where they are.
        """
        with self._lock:
            results: dict[int, DrawResult] = {}
            groups: dict[object, list[int]] = {}
            for number, spec in enumerate(specs):
                try:
                    self._arguments.check(spec)
                    batch_key = spec.batch_key()
                except (UnusableAnswerError, BadImageError) as error:
                    results[number] = error
                    continue
                key = batch_key if self._arguments.can_batch(spec) else number
                groups.setdefault(key, []).append(number)
            for group in groups.values():
                images = self._draw_group([specs[number] for number in group], is_cancelled)
                results |= zip(group, images, strict=True)
        return [results[number] for number in range(len(specs))]

    def _draw_group(
        self, specs: Sequence[GenerationSpec], is_cancelled: Callable[[], bool]
    ) -> Iterator[DrawResult]:
        start = 0
        while start < len(specs):  # the batch size may fall meanwhile
            batch = specs[start : start + self._max_batch]
            yield from self._draw_batch(batch, is_cancelled)
            start += len(batch)

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
        if "callback_on_step_end" in self._arguments.parameters:
            arguments["callback_on_step_end"] = _interrupter(is_cancelled)
        images = self._pipeline(**arguments).images
        for spec, image in zip(specs, images, strict=True):
            if spec.size and spec.size != image.size:  # rounded to patches, or the pipeline's own
                image = image.resize(spec.size, Image.Resampling.LANCZOS)
            yield EncodedImage.of(_opaque(image))

    def _translate_error(self, error: Exception, spec: GenerationSpec) -> Exception:
        import torch

        name = self._arguments.name
        on_cpu = "DefaultCPUAllocator" in str(error)  # torch has no type for it
        if on_cpu or isinstance(error, torch.OutOfMemoryError | MemoryError):
            return ImageExceedsMemory(
                f"{name}: an image of {spec.params.size or 'the size that it chooses'} does "
                f"not fit into the memory of {self._pipeline._execution_device} beside the "
                "weights; draw smaller ones (`size`), or take a device with more memory"
            )
        return UnusableAnswerError(f"{name} cannot draw this: {first_line(error)}")


@lru_cache(maxsize=1)
def _load(
    model_json: str, identity: str, device: str, dtype_name: str, offload: bool
) -> tuple[Any, threading.Lock]:
    """A pipeline, and the lock that lets one thread at a time use it."""
    _load.cache_clear()  # free the weights of the last model first
    _free_memory()
    model = GeneratorModel.model_validate_json(model_json)
    device, dtype = device_and_dtype(device, dtype_name)
    try:
        pipeline = _pipeline(model, dtype)
        if offload:
            pipeline.enable_model_cpu_offload(device=device)
        else:
            pipeline = pipeline.to(device)
        return pipeline, threading.Lock()
    except Exception as error:  # diffusers, safetensors and the hub raise errors of all kinds
        licence = f"; accept the licence of {model.model} on Hugging Face and set HF_TOKEN"
        raise BackendError(
            f"generator {identity} cannot be loaded on {device}: {first_line(error)}"
            f"{licence if model.gated else ''}"
        ) from error


def _pipeline(model: GeneratorModel, dtype: Any) -> Any:
    import diffusers
    from diffusers.utils.logging import disable_progress_bar

    disable_progress_bar()
    pipeline = getattr(diffusers, str(model.pipeline)).from_pretrained(
        model.model, revision=model.revision, dtype=dtype, use_safetensors=True
    )
    pipeline.set_progress_bar_config(disable=True)
    if lora := model.lora:
        pipeline.load_lora_weights(lora.model, revision=lora.revision, weight_name=lora.file)
        scheduler = pipeline.scheduler
        pipeline.scheduler = scheduler.from_config(scheduler.config, **lora.scheduler)
    return pipeline


def _interrupter(is_cancelled: Callable[[], bool]) -> Callable[..., dict[str, Any]]:
    def interrupt(pipeline: Any, step: int, timestep: Any, values: dict[str, Any]) -> Any:
        pipeline._interrupt = is_cancelled()
        return values

    return interrupt


def _free_memory() -> None:
    import torch

    torch.cuda.empty_cache()
