"""What can be served: a model of diffusers, or the sketch world's generator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from warehouse import EncodedImage

from ..backends.diffusers.generation_spec import GenerationSpec
from ..backends.diffusers.model_selection import SelectedModel, select_model
from ..backends.diffusers.pipeline_runner import Drawn, load_pipeline_runner
from ..backends.diffusers.sampling_params import SamplingParams
from ..backends.diffusers.settings import DiffusersSettings
from ..roles import RetryableError, UnusableAnswerError
from ..sketch_world.generator import SketchGenerator
from ..sketch_world.settings import SketchSettings

SKETCH = "sketch"
_SIDE = 96  # sketches are multiples of it


class ImageModel(Protocol):
    """A model in memory."""

    def draw(
        self, drawings: Sequence[GenerationSpec], given_up: Callable[[], bool]
    ) -> Sequence[Drawn]: ...


class ServableImageModel(Protocol):
    """A model that a replica can load; it is sent to the replica's process.

    `manner` is how it draws where a request says nothing else.
    """

    @property
    def name(self) -> str: ...

    @property
    def manner(self) -> SamplingParams: ...

    def load(self, device: str, batch: int) -> ImageModel:
        """Bring it into memory.

        Raises:
            BackendError: it is not there, or cannot be loaded.
        """


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of diffusers."""

    choice: SelectedModel

    @property
    def name(self) -> str:
        return self.choice.name

    @property
    def manner(self) -> SamplingParams:
        return self.choice.manner

    def load(self, device: str, batch: int) -> ImageModel:
        return load_pipeline_runner(self.choice, device, batch)


@dataclass(frozen=True)
class Sketch:
    """The sketch world, which needs neither weights nor a GPU; it has no steps and no guidance."""

    name: str = SKETCH
    manner: SamplingParams = field(default_factory=lambda: SamplingParams(size="192x192"))

    def load(self, device: str, batch: int) -> ImageModel:
        return _SketchImageModel()


class _SketchImageModel:
    def draw(
        self, drawings: Sequence[GenerationSpec], given_up: Callable[[], bool]
    ) -> Sequence[Drawn]:
        return [_sketched(drawing, given_up) for drawing in drawings]


def _sketched(drawing: GenerationSpec, given_up: Callable[[], bool]) -> Drawn:
    if given_up():
        return RetryableError("nobody waits for this picture any more")
    try:
        generator = SketchGenerator(SketchSettings(picture_size=_side(drawing)))
        return EncodedImage.of(generator.draw(drawing.prompt, drawing.images, drawing.seed).image)
    except UnusableAnswerError as error:
        return error


def _side(drawing: GenerationSpec) -> int:
    if drawing.mask is not None:
        raise UnusableAnswerError(f"{SKETCH} takes no mask; leave it out")
    if (drawing.manner.negative_prompt or "").strip():
        raise UnusableAnswerError(f"{SKETCH} takes no negative prompt; leave it out")
    width, height = drawing.manner.pixels or (2 * _SIDE, 2 * _SIDE)
    if width != height or width % _SIDE:
        raise UnusableAnswerError(
            f"{SKETCH} draws squares whose side is a multiple of {_SIDE} pixels, such as 192x192, "
            f"not {width}x{height}"
        )
    return width


def find_served(reference: str, registry: Path | None) -> ServableImageModel:
    """The model of a name.

    Args:
        reference: a name of the registry, the folder of a pipeline, or `sketch`.
        registry: a file with more models.

    Raises:
        BackendError: there is none, or it is not for diffusers.
        DocumentError: the registry cannot be read.
    """
    if reference == SKETCH:
        return Sketch()
    return Pipeline(select_model(DiffusersSettings(model=reference, registry=registry)))
