"""The registry: which picture models there are, what each can do, and who plays it."""

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from schemas.yaml_config import ConfigModel, load_document

from ...roles import BackendError
from .sampling_params import SamplingParams

FILE = Path(__file__).with_name("registry.yaml")

Ability = Literal["text", "edit", "references", "mask"]
_COMMIT = re.compile(r"[0-9a-f]{40}")


class Weights(ConfigModel):
    """A repository on Hugging Face, or a local folder."""

    model: str = Field(description="Hugging Face id, or a folder")
    revision: str | None = Field(None, description="Commit, tag or branch; null: it has none")
    pinned: bool = Field(True, description="false: the revision is no commit, and may move")

    @model_validator(mode="after")
    def _says_when_it_may_move(self) -> "Weights":
        if self.revision and self.pinned and not _COMMIT.fullmatch(self.revision):
            raise ValueError("revision: give a commit of 40 hex digits, or say `pinned: false`")
        return self


class LoRA(Weights):
    """Low-rank weights on top of a model's own."""

    file: str = Field(description="The weights' file in the repository")
    scheduler: dict[str, Any] = Field(
        default_factory=dict, description="Changes to the scheduler's configuration"
    )


class PictureModel(Weights):
    """A generator."""

    title: str = Field(description="What people call it")
    backend: Literal["diffusers", "images", "gemini"] = Field(description="Who plays it")
    pipeline: str | None = Field(None, description="Class of diffusers; null for other backends")
    lora: LoRA | None = Field(None, description="null: none")
    can: tuple[Ability, ...] = Field(min_length=1, description="What it can do")
    references: int | None = Field(
        None, ge=2, description="Pictures that it looks at, at most; null: no limit is known"
    )
    together: Literal["texts", "pictures"] | None = Field(
        None,
        description="Requests drawn in one batch: those without pictures, or those with pictures "
        "of equal size as well; null: each by itself",
    )
    guided_by: Literal["guidance_scale", "true_cfg_scale"] = Field(
        "guidance_scale", description="What the pipeline calls the guidance that counts"
    )
    defaults: SamplingParams = Field(
        default_factory=SamplingParams, description="How it draws best"
    )
    licence: str = Field(description="Of the weights")
    gated: bool = Field(
        False, description="Its licence must be accepted on Hugging Face, and HF_TOKEN set"
    )
    note: str | None = Field(None, description="What else to know")

    @model_validator(mode="after")
    def _complete(self) -> "PictureModel":
        if self.backend == "diffusers" and not (self.pipeline and self.defaults.steps):
            raise ValueError("backend diffusers needs a `pipeline` and `defaults.steps`")
        return self

    @property
    def looks_at(self) -> int | None:
        """How many pictures it looks at; see `references_of` in `inference/roles.py`."""
        return self.references if "references" in self.can else 1

    @property
    def revision_shown(self) -> str:
        """A commit's first digits, or a revision that may move and says so."""
        if self.revision is None:
            return ""
        return self.revision[:12] if self.pinned else f"{self.revision} (not pinned)"


class Registry(ConfigModel):
    """Generators by name."""

    models: dict[str, PictureModel] = Field(description="Name -> model")

    def find(self, name: str) -> PictureModel:
        """The model of a name.

        Raises:
            BackendError: there is none.
        """
        if name not in self.models:
            known = ", ".join(self.models)
            raise BackendError(f"no generator '{name}'; there are: {known}, or give its folder")
        return self.models[name]

    def of_model(self, model: str) -> PictureModel | None:
        """The first model of a name at a provider, or of a Hugging Face id."""
        return next((each for each in self.models.values() if each.model == model), None)

    def of_pipeline(self, pipeline: str) -> PictureModel | None:
        """The first plain model that is drawn by a class of diffusers."""
        plain = (each for each in self.models.values() if each.lora is None)
        return next((each for each in plain if each.pipeline == pipeline), None)


@cache
def load_registry(more: Path | None = None) -> Registry:
    """The models that come with the project, and those of one's own file, which win.

    Raises:
        DocumentError: the file cannot be read, or is not of the form.
    """
    models = load_document(FILE, Registry).models
    if more is not None:
        models = models | load_document(more, Registry).models
    return Registry(models=models)
