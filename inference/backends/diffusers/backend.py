"""The backend `diffusers`: a generator in this process, the model that its settings select."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from schemas import FoundryError
from schemas.trajectories import Role
from warehouse import EncodedImage, Home

from ...calls.batching import Batcher
from ...calls.retry import report_usage
from ...generators import GeneratorPair
from ...roles import BackendError, Generator
from ..backend import Backends, BackendSettings, Finding, register
from ..model_files import Device, DType, download_command
from .pipeline_runner import GenerationSpec, PipelineRunner, white_canvas
from .registry import (
    INDEX,
    GeneratorModel,
    Registry,
    SamplingParams,
    SelectedModel,
    load_registry,
    missing_requirements,
)

_GATHER_SECONDS = 0.05  # how long the first request of a batch waits for others


@register
class DiffusersSettings(SamplingParams, BackendSettings):
    """A generator in this process. A batch is filled only if `limits.generator` is as large."""

    backend = "diffusers"
    summary = "A generator in this process, where `roles` names diffusers"
    plays = ("generator",)

    model: str = Field(
        "flux2-klein-9b",
        description="A name that `interleave generator list` shows, or the folder of a pipeline",
    )
    registry: Path | None = Field(None, description="A YAML file with more models; null: none")
    device: Device = "auto"
    dtype: DType = "auto"
    batch: int = Field(
        4, ge=1, description="Images drawn at once, at most; halved where memory does not suffice"
    )
    offload: bool = Field(
        False,
        description="Parts of the pipeline wait in main memory until they compute: a GPU holds the "
        "largest one only, and a batch takes some seconds more",
    )
    edit: "DiffusersSettings | None" = Field(
        None,
        description="Another model, for edits: the one above draws first images only. Both are "
        "held in memory. null: it draws all",
    )

    @model_validator(mode="after")
    def _two_models_at_most(self) -> "DiffusersSettings":
        if self.edit and self.edit.edit:
            raise ValueError("edit.edit: a generator has two models at most")
        return self

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        """The generator: one model, or a pair. Raises BackendError, also if `edit` cannot edit."""
        generator: Generator = DiffusersGenerator(self)
        if self.edit:
            if "edit" not in select_model(self.edit).model.can:
                raise BackendError(
                    f"{self.edit.model} does not edit images; name a model that does in "
                    "`diffusers.edit.model`"
                )
            generator = GeneratorPair(generator, DiffusersGenerator(self.edit))
        return {"generator": generator}

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        yield from map(check_pipeline, filter(None, (self, self.edit)))


class DiffusersGenerator:
    """Loads the weights for the first image; see `Generator` in `inference/roles.py`.

    Raises `BackendError`: the settings name no model for diffusers, or it is not installed.
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
        self.max_reference_images = self._selected.model.max_reference_images
        self._batcher: Batcher[GenerationSpec, EncodedImage] = Batcher(
            lambda specs, is_cancelled: self._runner.draw(specs, is_cancelled),
            settings.batch,
            _GATHER_SECONDS,
        )

    @cached_property
    def model(self) -> str:
        return self._selected.identity

    async def generate(
        self, prompt: str, images: Sequence[EncodedImage], seed: int
    ) -> EncodedImage:
        params = self._selected.params
        canvas = (white_canvas(params),) if self._selected.model.needs_canvas else ()
        spec = GenerationSpec(prompt, seed, params, tuple(images) or canvas)
        image = await self._batcher.submit(spec)
        report_usage(cost_usd=0.0)
        return image

    @cached_property
    def _runner(self) -> PipelineRunner:
        return PipelineRunner(self._selected, self._settings.device, self._settings.batch)


def select_model(settings: DiffusersSettings) -> SelectedModel:
    """The model that the settings name.

    Raises:
        BackendError: there is none of that name, or it is not for diffusers.
        DocumentError: the registry cannot be read.
    """
    name, registry = settings.model, load_registry(settings.registry)
    folder = Path(name).expanduser()
    if name not in registry.models and folder.is_dir():
        name, model = folder.name, _local_model(folder, registry)
    else:
        model = registry.find(name)
    if model.backend != "diffusers":
        raise BackendError(
            f"{name} is not for backend diffusers but for {model.backend}: "
            f"{model.note or f'give the generator to {model.backend} under `roles`'}"
        )
    params = settings.over(model.defaults)
    return SelectedModel(name, model, params, settings.dtype, settings.offload)


def _local_model(folder: Path, registry: Registry) -> GeneratorModel:
    """The model in a pipeline's folder, with the abilities of its class."""
    try:
        pipeline = str(json.loads((folder / INDEX).read_text("utf-8"))["_class_name"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BackendError(
            f"{folder} is no pipeline of diffusers: there is no {INDEX} in it that names a class"
        ) from None
    similar = registry.of_pipeline(pipeline)
    if similar is None:
        raise BackendError(
            f"{folder} is a {pipeline}, which is unknown here; describe it in a file and name that "
            "in `diffusers.registry`"
        )
    return similar.model_copy(update={"model": str(folder), "revision": None, "gated": False})


def check_pipeline(settings: DiffusersSettings) -> Finding:
    """Weights of a generator that runs on this machine, in a process of ours or in a server."""
    try:
        choice = select_model(settings)
    except FoundryError as error:
        return Finding(f"generator {settings.model}", str(error))
    reasons = missing_requirements(choice.model, on_gpu=settings.device != "cpu")
    parts = [part for part in (choice.model, choice.model.lora) if part]
    commands = " and ".join(download_command(part.model, part.revision) for part in parts)
    remedy = f"weights are downloaded for the first image, or by {commands}"
    return Finding(
        f"generator {choice.identity}", f"{', '.join(reasons)}; {remedy}" if reasons else None
    )
