"""What can be served: a pipeline of diffusers, or the sketch world's generator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..backends.diffusers.generation_spec import GenerationSpec
from ..backends.diffusers.model_selection import SelectedModel, select_model
from ..backends.diffusers.pipeline_runner import DrawResult, load_pipeline_runner
from ..backends.diffusers.settings import DiffusersSettings, SamplingParams
from ..roles import RetryableError, UnusableAnswerError
from ..sketch_world import generator as sketch_generator
from ..sketch_world.settings import SketchSettings

SKETCH = "sketch"
_SIDE = 96  # sides of sketches are multiples of it


class ImageModel(Protocol):
    """A model in memory."""

    def draw(
        self, specs: Sequence[GenerationSpec], is_cancelled: Callable[[], bool]
    ) -> Sequence[DrawResult]: ...


class ServableImageModel(Protocol):
    """A model that a replica can load; it is sent to the replica's process.

    `params` has the parameters that requests leave out.
    """

    @property
    def name(self) -> str: ...

    @property
    def params(self) -> SamplingParams: ...

    def load(self, device: str, batch: int) -> ImageModel:
        """Load it into memory.

        Raises:
            BackendError: it is unavailable, or cannot be loaded.
        """


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of diffusers."""

    selected: SelectedModel

    @property
    def name(self) -> str:
        return self.selected.name

    @property
    def params(self) -> SamplingParams:
        return self.selected.params

    def load(self, device: str, batch: int) -> ImageModel:
        return load_pipeline_runner(self.selected, device, batch)


@dataclass(frozen=True)
class Sketch:
    """The sketch world: no weights, no GPU, neither steps nor guidance."""

    name: str = SKETCH
    params: SamplingParams = field(default_factory=lambda: SamplingParams(size="192x192"))

    def load(self, device: str, batch: int) -> ImageModel:
        return _SketchModel()


class _SketchModel:
    def draw(
        self, specs: Sequence[GenerationSpec], is_cancelled: Callable[[], bool]
    ) -> Sequence[DrawResult]:
        return [_draw_sketch(spec, is_cancelled) for spec in specs]


def _draw_sketch(spec: GenerationSpec, is_cancelled: Callable[[], bool]) -> DrawResult:
    if is_cancelled():
        return RetryableError("the request for this image was cancelled")
    try:
        settings = SketchSettings(picture_size=_side(spec))
        return sketch_generator.draw(spec.prompt, spec.images, spec.seed, settings)
    except UnusableAnswerError as error:
        return error


def _side(spec: GenerationSpec) -> int:
    if spec.mask is not None:
        raise UnusableAnswerError(f"{SKETCH} takes no mask; leave it out")
    if (spec.params.negative_prompt or "").strip():
        raise UnusableAnswerError(f"{SKETCH} takes no negative prompt; leave it out")
    width, height = spec.params.pixels or (2 * _SIDE, 2 * _SIDE)
    if width != height or width % _SIDE:
        raise UnusableAnswerError(
            f"{SKETCH} draws squares whose side is a multiple of {_SIDE} pixels, such as 192x192, "
            f"not {width}x{height}"
        )
    return width


def find_servable(reference: str, registry: Path | None) -> ServableImageModel:
    """The model of a name.

    Args:
        reference: a name in the registry, the folder of a pipeline, or `sketch`.
        registry: a file with additional models.

    Raises:
        BackendError: there is none, or it is not for diffusers.
        DocumentError: the registry cannot be read.
    """
    if reference == SKETCH:
        return Sketch()
    return Pipeline(select_model(DiffusersSettings(model=reference, registry=registry)))
