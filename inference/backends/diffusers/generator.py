"""The generator that a pipeline of diffusers plays."""

from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.util import find_spec

from warehouse import EncodedImage

from ...engine.batching import Batcher
from ...engine.usage import report_usage
from ...roles import BackendError
from .generation_spec import GenerationSpec
from .model_selection import select_model
from .pipeline_runner import Drawn, PipelineRunner, load_pipeline_runner
from .settings import DiffusersSettings

_CANVAS = (1024, 1024)


class DiffusersGenerator:
    """Draws in this process; see `Generator` in `inference/roles.py`.

    The weights are loaded for the first picture.

    Raises:
        BackendError: the settings name no model for diffusers, or that is not installed.
    """

    backend = "diffusers"

    def __init__(self, settings: DiffusersSettings) -> None:
        self._choice, self._settings = select_model(settings), settings
        if self._choice.model.can == ("mask",):
            raise BackendError(
                f"{self._choice.name} only repaints what a mask shows, and the loop has no masks; "
                "name another model in `diffusers.model`"
            )
        if find_spec("diffusers") is None:
            raise BackendError("backend diffusers needs the package diffusers: run `make setup`")
        self._batcher: Batcher[GenerationSpec, EncodedImage] = Batcher(
            self._work, settings.batch, settings.gather_seconds
        )

    @cached_property
    def model(self) -> str:
        return self._choice.identity

    @property
    def references(self) -> int | None:
        """See `references_of` in `inference/roles.py`."""
        return self._choice.model.looks_at

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        drawing = GenerationSpec(prompt, seed, self._choice.manner, tuple(images) or self._canvas)
        picture = await self._batcher.ask(drawing)
        report_usage(cost_usd=0.0)
        return picture

    @property
    def _canvas(self) -> tuple[EncodedImage, ...]:
        """What is edited where there is no picture yet."""
        can = self._choice.model.can
        if "text" in can or "edit" not in can or self._settings.canvas is None:
            return ()
        return (EncodedImage.white(self._choice.manner.pixels or _CANVAS),)

    @cached_property
    def _painter(self) -> PipelineRunner:
        return load_pipeline_runner(self._choice, self._settings.device, self._settings.batch)

    def _work(
        self, drawings: Sequence[GenerationSpec], given_up: Callable[[], bool]
    ) -> Sequence[Drawn]:
        return self._painter.draw(drawings, given_up)
