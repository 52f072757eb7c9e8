"""What can be served, its settings, and a replica, which generates in batches."""

import asyncio
import io
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Literal

from PIL import Image, ImageOps
from pydantic import Field

from schemas import BadImageError
from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage
from warehouse.images import UPLOAD_FORMATS

from ..backends.diffusers.backend import DiffusersSettings, select_model
from ..backends.diffusers.pipeline_runner import (
    DrawResult,
    GenerationSpec,
    ImageExceedsMemory,
    PipelineRunner,
)
from ..backends.diffusers.registry import SamplingParams, SelectedModel
from ..backends.images.limits import GeneratorLimits, limits_of
from ..calls.batching import Batcher
from ..roles import RetryableError, UnusableAnswerError
from ..sketch_world import generator as sketch_generator
from ..sketch_world.settings import SketchSettings

_SIDE = 96  # sides of sketches are multiples of it


# A model in memory. The function that it is given says whether all images were cancelled.
DrawBatch = Callable[[Sequence[GenerationSpec], Callable[[], bool]], Sequence[DrawResult]]


class ImageLimits(ConfigModel):
    """Limits of one request."""

    bytes: int = Field(100 * 2**20, ge=1, description="Size of a request's body")
    pixels: int = Field(4096 * 4096, ge=1, description="Pixels of an image, input or output")
    steps: int = Field(500, ge=1, description="Denoising steps")
    seconds: float = Field(
        1800, gt=0, description="How long a request may wait and run before it is cancelled"
    )


class ImagesServerSettings(ConfigModel):
    """Where it listens, and the replicas behind it."""

    host: str = Field("127.0.0.1", description="Address to listen on")
    port: int = Field(8010, ge=0, le=65535, description="Port to listen on; 0: any free one")
    replicas: int | None = Field(
        None, ge=1, description="Copies of the model; null: one for each GPU, or one on CPUs"
    )
    batch: int = Field(4, ge=1, description="Images that a replica generates at once, at most")
    queue: int = Field(64, ge=0, description="Images that may wait until replicas are free")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: a GPU for each replica where Ray has any, else CPUs"
    )
    offload: bool = Field(
        False,
        description="Parts of the model wait in main memory until they compute: less GPU memory, "
        "some seconds more for a batch",
    )
    ray: str | None = Field(
        None,
        description="Address (host:port, or auto) of a running Ray cluster of which this machine "
        "is a node; null: start a local Ray, which ends with the server",
    )
    allowed: ImageLimits = ImageLimits()


@dataclass(frozen=True)
class ServableImageModel:
    """A model that a replica can load; it is sent to the replica's process.

    Attributes:
        params: those that requests leave out.
        load: given device and batch size; raises BackendError if the model cannot be loaded.
        needs_canvas: whether it only edits: a request without images starts from a white one.
    """

    name: str
    params: SamplingParams
    load: Callable[[str, int], DrawBatch]
    limits: GeneratorLimits
    needs_canvas: bool = False


def servable_pipeline(selected: SelectedModel) -> ServableImageModel:
    """A pipeline of diffusers."""
    model, load = selected.model, partial(_load_pipeline, selected)
    limits = limits_of(model)
    return ServableImageModel(selected.name, selected.params, load, limits, model.needs_canvas)


def _load_pipeline(selected: SelectedModel, device: str, batch: int) -> DrawBatch:
    return PipelineRunner(selected, device, batch).draw


def _load_sketch(device: str, batch: int) -> DrawBatch:
    return lambda specs, is_cancelled: [_draw_sketch(spec, is_cancelled) for spec in specs]


def _draw_sketch(spec: GenerationSpec, is_cancelled: Callable[[], bool]) -> DrawResult:
    if is_cancelled():
        return RetryableError("the request for this image was cancelled")
    try:
        settings = SketchSettings(picture_size=_side(spec))
        return sketch_generator.draw(spec.prompt, spec.images, spec.seed, settings)
    except UnusableAnswerError as error:
        return error


def _side(spec: GenerationSpec) -> int:
    if (spec.params.negative_prompt or "").strip():
        raise UnusableAnswerError("sketch takes no negative prompt; leave it out")
    width, height = spec.params.pixels or (2 * _SIDE, 2 * _SIDE)
    if width != height or width % _SIDE:
        raise UnusableAnswerError(
            f"sketch draws squares whose side is a multiple of {_SIDE} pixels, such as 192x192, "
            f"not {width}x{height}"
        )
    return width


# The sketch world: no weights, no GPU, neither steps nor guidance.
SKETCH = ServableImageModel(
    "sketch",
    SamplingParams(size="192x192"),
    _load_sketch,
    GeneratorLimits(
        references=1, mask=False, negative_prompt=False, side_multiple=_SIDE, square=True
    ),
)


def find_servable(
    reference: str, registry: Path | None, offload: bool = False
) -> ServableImageModel:
    """The model of a name in the registry or in the file `registry`, a pipeline's folder, `sketch`.

    `offload`: see `DiffusersSettings`.

    Raises:
        BackendError: there is none, or it is not for diffusers.
        DocumentError: the registry cannot be read.
    """
    if reference == SKETCH.name:
        return SKETCH
    settings = DiffusersSettings(model=reference, registry=registry, offload=offload)
    return servable_pipeline(select_model(settings))


@dataclass(frozen=True)
class DrawnImage:
    """An image (PNG), with the time and size of its batch, and its replica as `host:process`."""

    data: bytes
    seconds: float
    batch: int
    replica: str


@dataclass(frozen=True)
class DrawRejected:
    """Why this model cannot generate this image, now or later."""

    reason: str


ReplicaResult = DrawnImage | DrawRejected


def to_white_mask(image: EncodedImage) -> EncodedImage:
    """A mask that is white where to repaint; OpenAI's are transparent there.

    Raises:
        BadImageError: it cannot be decoded.
    """
    try:
        with Image.open(io.BytesIO(image.data), formats=UPLOAD_FORMATS) as mask:
            if not mask.has_transparency_data:
                return image
            return EncodedImage.of(ImageOps.invert(mask.convert("RGBA").getchannel("A")))
    except Exception as error:  # Pillow raises errors of all kinds
        raise BadImageError("mask cannot be decoded") from error


def _without_mask(spec: GenerationSpec) -> GenerationSpec:
    """For a model that paints no masks: the whole image, as large as its mask."""
    assert spec.mask is not None
    size = "{}x{}".format(*spec.mask.image.size)
    if spec.images[-1].image.size != spec.mask.image.size:
        raise UnusableAnswerError(f"the mask is {size}, and the image is not")
    params = spec.params.model_copy(update={"size": size})
    return replace(spec, mask=None, params=params)


def _cut(image: DrawnImage, mask: EncodedImage, before: EncodedImage) -> DrawnImage:
    """A whole edit inside the mask, what was there before around it."""
    after = EncodedImage(image.data)
    if after.image.size != mask.image.size:
        raise UnusableAnswerError(
            "{}x{} was drawn, and the mask is larger or smaller".format(*after.image.size)
        )
    cut = Image.composite(after.image, before.image, mask.image.convert("L"))
    return replace(image, data=EncodedImage.of(cut).data)


# A spec, and the key of the batches that it fits into.
_BatchItem = tuple[GenerationSpec, tuple[object, ...]]


class Replica:
    """Loads a model and generates with it; Ray Serve starts it in a separate process.

    Raises:
        BackendError: the model cannot be loaded.
    """

    def __init__(
        self, model: ServableImageModel, device: str, batch: int, gather_seconds: float = 0.02
    ) -> None:
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._paints_masks = model.limits.mask
        self._draw = model.load(device, batch)
        self._batcher: Batcher[_BatchItem, DrawnImage] = Batcher(
            self._draw_batch, batch, gather_seconds, group_by=itemgetter(1)
        )

    async def draw(self, spec: GenerationSpec) -> ReplicaResult:
        """One image, in a batch with compatible ones; skipped when cancelled in time."""
        mask = None if self._paints_masks else spec.mask
        try:
            drawn = spec if mask is None else await asyncio.to_thread(_without_mask, spec)
            key = await asyncio.to_thread(drawn.batch_key)  # decodes all input images
            image = await self._batcher.submit((drawn, key))
            if mask is None:
                return image
            return await asyncio.to_thread(_cut, image, mask, spec.images[-1])
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
        results = self._draw([spec for spec, _ in items], is_cancelled)
        seconds = perf_counter() - start
        return [
            result
            if isinstance(result, Exception)
            else DrawnImage(result.data, seconds, len(items), self._name)
            for result in results
        ]
