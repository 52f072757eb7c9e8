"""The generator of the `diffusers` backend."""

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec

from warehouse import EncodedImage

from ...engine.batching import Batcher
from ...engine.usage import report_usage
from ...roles import BackendError
from .generation_spec import GenerationSpec
from .model_selection import select_model
from .pipeline_runner import PipelineRunner, load_pipeline_runner
from .settings import DiffusersSettings

_CANVAS_SIZE = (1024, 1024)


class DiffusersGenerator:
    """Generates images in this process; see `Generator` in `inference/roles.py`.

    The weights are loaded for the first image.

    Raises:
        BackendError: the settings name no model for diffusers, or it is not installed.
    """

    backend = "diffusers"

    def __init__(self, settings: DiffusersSettings) -> None:
        self._selected, self._settings = select_model(settings), settings
        if self._selected.model.can == ("mask",):
            raise BackendError(
                f"{self._selected.name} only repaints what a mask shows, and the loop has no "
                "masks; name another model in `diffusers.model`"
            )
        if find_spec("diffusers") is None:
            raise BackendError("backend diffusers needs the package diffusers: run `make setup`")
        self._batcher: Batcher[GenerationSpec, EncodedImage] = Batcher(
            lambda specs, is_cancelled: self._runner.draw(specs, is_cancelled),
            settings.batch,
            settings.gather_seconds,
        )

    @cached_property
    def model(self) -> str:
        return self._selected.identity

    @property
    def max_reference_images(self) -> int | None:
        """See `max_reference_images` in `inference/roles.py`."""
        return self._selected.model.max_reference_images

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        inputs = tuple(images) or self._canvas
        spec = GenerationSpec(prompt, seed, self._selected.params, inputs)
        image = await self._batcher.submit(spec)
        report_usage(cost_usd=0.0)
        return image

    @property
    def _canvas(self) -> tuple[EncodedImage, ...]:
        """The initial image of a model that only edits."""
        can = self._selected.model.can
        if "text" in can or "edit" not in can or self._settings.canvas is None:
            return ()
        return (EncodedImage.white(self._selected.params.pixels or _CANVAS_SIZE),)

    @cached_property
    def _runner(self) -> PipelineRunner:
        return load_pipeline_runner(self._selected, self._settings.device, self._settings.batch)
