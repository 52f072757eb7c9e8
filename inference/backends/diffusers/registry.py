"""The registry of generators, and a model of it with its sampling parameters."""

import json
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from schemas.yaml_config import ConfigModel, load_document

from ...calls.hashing import stable_hash
from ...roles import BackendError
from ..model_files import cached_file, missing_here, weights_revision

REGISTRY_FILE = Path(__file__).with_name("registry.yaml")

Ability = Literal["text", "edit", "references", "mask", "negative_prompt"]


class SamplingParams(ConfigModel):
    """Sampling parameters, with the same names for every pipeline; null: a default applies."""

    steps: int | None = Field(None, ge=1, description="Denoising steps; null: the model's own")
    guidance: float | None = Field(
        None, ge=0, description="How closely the prompt is followed; null: the model's own"
    )
    negative_prompt: str | None = Field(
        None, description="What not to draw; null: the model's own, or none"
    )
    size: str | None = Field(
        None,
        pattern=r"^[1-9]\d*x[1-9]\d*$",
        description="Width x height in pixels, as in 1024x1024; null: the model's own",
    )

    @property
    def pixels(self) -> tuple[int, int] | None:
        """Width and height."""
        if self.size is None:
            return None
        width, height = self.size.split("x")
        return int(width), int(height)

    def over(self, defaults: "SamplingParams") -> "SamplingParams":
        """These parameters, with the defaults where they are null."""
        values = self.model_dump(include={*SamplingParams.model_fields}, exclude_none=True)
        return defaults.model_copy(update=values)


class Weights(ConfigModel):
    """A repository on Hugging Face, or a local folder."""

    model: str = Field(description="Hugging Face id, or a folder")
    revision: str | None = Field(None, description="Commit, tag or branch; null: it has none")
    pinned: bool = Field(True, description="false: the revision is no commit, and may move")

    @model_validator(mode="after")
    def _require_commit_if_pinned(self) -> "Weights":
        if self.revision and self.pinned and not re.fullmatch("[0-9a-f]{40}", self.revision):
            raise ValueError("revision: give a commit of 40 hex digits, or say `pinned: false`")
        return self


class LoRA(Weights):
    """Low-rank weights on top of a model's own."""

    file: str = Field(description="The weights' file in the repository")
    scheduler: dict[str, Any] = Field(
        default_factory=dict, description="Changes to the scheduler's configuration"
    )


class GeneratorModel(Weights):
    """A generator of the registry."""

    title: str = Field(description="Name for people")
    backend: Literal["diffusers", "images", "gemini"] = Field(description="Backend that runs it")
    pipeline: str | None = Field(None, description="Class of diffusers; null for other backends")
    lora: LoRA | None = Field(None, description="null: none")
    can: tuple[Ability, ...] = Field(min_length=1, description="What it can do")
    references: int | None = Field(
        None, ge=2, description="The most reference images; null: no limit is known"
    )
    caches_references: bool = Field(
        False, description="Reference images are computed in the first step only"
    )
    together: Literal["texts", "pictures"] | None = Field(
        None,
        description="Requests drawn in one batch: those without images (texts), or also those with "
        "images of equal size (pictures); null: each separately",
    )
    guided_by: Literal["guidance_scale", "true_cfg_scale"] | None = Field(
        "guidance_scale", description="The pipeline's argument for guidance; null: it has none"
    )
    defaults: SamplingParams = Field(
        default_factory=SamplingParams, description="Recommended sampling parameters"
    )
    licence: str = Field(description="Of the weights")
    gated: bool = Field(
        False, description="Its licence must be accepted on Hugging Face, and HF_TOKEN set"
    )
    note: str | None = Field(None, description="What else to know")

    @model_validator(mode="after")
    def _require_pipeline(self) -> "GeneratorModel":
        if self.backend == "diffusers" and not (self.pipeline and self.defaults.steps):
            raise ValueError("backend diffusers needs a `pipeline` and `defaults.steps`")
        return self

    @property
    def max_reference_images(self) -> int | None:
        """See `max_reference_images` in `inference/roles.py`."""
        return self.references if "references" in self.can else 1

    @property
    def needs_canvas(self) -> bool:
        """Whether it only edits, so that first images are drawn on a white canvas."""
        return "edit" in self.can and "text" not in self.can

    @property
    def revision_label(self) -> str:
        """The first digits of a commit, or a revision with a note that it is not pinned."""
        if self.revision is None:
            return ""
        return self.revision[:12] if self.pinned else f"{self.revision} (not pinned)"


class Registry(ConfigModel):
    """Generators by name."""

    models: dict[str, GeneratorModel] = Field(description="Name -> model")

    def find(self, name: str) -> GeneratorModel:
        """Raises `BackendError` if there is no model of this name."""
        if name not in self.models:
            known = ", ".join(self.models)
            raise BackendError(f"no generator '{name}'; there are: {known}, or give its folder")
        return self.models[name]

    def of_model(self, model: str) -> GeneratorModel | None:
        """The first generator with this model: a name at a provider, or a Hugging Face id."""
        return next((known for known in self.models.values() if known.model == model), None)

    def of_pipeline(self, pipeline: str) -> GeneratorModel | None:
        """The first generator without a LoRA that uses a class of diffusers."""
        plain = (model for model in self.models.values() if model.lora is None)
        return next((model for model in plain if model.pipeline == pipeline), None)


@cache
def load_registry(extra: Path | None = None) -> Registry:
    """The project's generators, and those of another file, which take precedence.

    Raises `DocumentError`: the file cannot be read, or is invalid.
    """
    models = load_document(REGISTRY_FILE, Registry).models
    if extra is not None:
        models = models | load_document(extra, Registry).models
    return Registry(models=models)


INDEX = "model_index.json"
# The parts that hold nearly all of a pipeline's weights, in every class of the registry.
_PARTS = ("transformer", "text_encoder", "vae")
_GEMINI_KEY = "GEMINI_API_KEY"


@dataclass(frozen=True)
class SelectedModel:
    """A model, and its sampling parameters where a request sets none.

    `offload`: see `DiffusersSettings`.
    """

    name: str
    model: GeneratorModel
    params: SamplingParams
    dtype: str
    offload: bool = False

    @property
    def identity(self) -> str:
        """`name@revision-hash`, which changes whenever images may.

        Device, offloading and batch are not part of it: they change pixels by rounding only. Never
        change the keys of the hash.
        """
        model, lora = self.model, self.model.lora
        hashed = model.model_dump(
            mode="json", include={"model", "pipeline", "lora", "together", "guided_by"}
        )
        hashed |= {"manner": self.params.model_dump(), "dtype": self.dtype}
        weights = [part for part in (model, lora) if part]
        hashed |= {"weights": [weights_revision(part.model, part.revision) for part in weights]}
        revision = weights_revision(model.model, model.revision)
        return f"{self.name}@{revision[:12]}-{stable_hash(hashed)[:8]}"


def missing_requirements(model: GeneratorModel, on_gpu: bool = True) -> list[str]:
    """Why a generator cannot be used on this machine, in a few words each; empty: it can."""
    if model.backend == "images":
        return ["needs a server of its own"]
    if model.backend == "gemini":
        no_key = [] if os.environ.get(_GEMINI_KEY) else [f"no key {_GEMINI_KEY}"]
        return [*missing_here(["google-genai"], on_gpu=False), *no_key]
    packages = ["diffusers", *(["peft"] if model.lora else [])]
    missing = list(missing_here(packages, on_gpu))
    if not _is_downloaded(model):
        missing.append(f"weights not downloaded{', gated' if model.gated else ''}")
    return missing


def _is_downloaded(model: GeneratorModel) -> bool:
    """Whether LoRA and parts have some weights; a single missing file of several is not noticed."""
    lora, index = model.lora, cached_file(model.model, model.revision, INDEX)
    if index is None or (lora and not cached_file(lora.model, lora.revision, lora.file)):
        return False
    names = json.loads(index.read_text("utf-8"))
    parts = [index.parent / part for part in _PARTS if part in names]
    return all(any(part.glob("*.safetensors")) for part in parts)
