"""Profile settings of a generator behind an images endpoint."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from warehouse import EncodedImage

from ..providers.settings import EndpointSettings, RemoteGeneratorModel
from .dialects import DIALECTS, DialectName, is_openai, problem_with

# Parameters of a request by our names; `seed` comes with each request.
_PARAMETERS = (
    "size",
    "steps",
    "guidance",
    "negative_prompt",
    "quality",
    "background",
    "output_format",
    "output_compression",
    "input_fidelity",
    "moderation",
)


class ImagesGeneratorModel(RemoteGeneratorModel):
    """A generator behind an images endpoint, or two of them: `edit` draws all but first images."""

    dialect: DialectName | None = Field(
        None,
        description="Which parameters the server has: openai, vllm-omni, sglang or ours. null: by "
        "the host and the model's name, else by what the server's /v1/models says",
    )
    references: int | None = Field(
        None,
        ge=1,
        description="Most images of an edit; null: as the registry says, else any number. What the "
        "server says comes before both",
    )
    steps: int | None = Field(None, ge=1, description="null: the model's own number of steps")
    guidance: float | None = Field(None, ge=0, description="Guidance scale; null: the model's own")
    negative_prompt: str | None = Field(None, description="null: none")
    quality: Literal["auto", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="Of OpenAI's models; null: their own choice"
    )
    background: Literal["auto", "opaque", "transparent"] | None = Field(
        None, description="null: the model's own choice"
    )
    output_format: Literal["png", "jpeg", "webp"] | None = Field(
        None, description="null: the server's, which is png nearly everywhere"
    )
    output_compression: int | None = Field(
        None, ge=0, le=100, description="Of jpeg and webp; null: the server's own"
    )
    input_fidelity: Literal["low", "high"] | None = Field(
        None, description="How closely edits by OpenAI's models keep to the images; null: their own"
    )
    moderation: Literal["auto", "low"] | None = Field(
        None, description="Of first images by OpenAI's models; null: their own"
    )
    mask: Path | None = Field(
        None,
        description="Image whose transparent part is all that edits repaint; as large as what is "
        "edited. null: edits may change everything",
    )
    edit: "ImagesGeneratorModel | None" = Field(
        None,
        description="Another model, for edits: the one above draws first images only. null: it "
        "draws all",
    )

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """What is set, by our names."""
        values = {name: getattr(self, name) for name in _PARAMETERS}
        return {name: value for name, value in values.items() if value is not None}

    @cached_property
    def mask_image(self) -> EncodedImage | None:
        return EncodedImage(self.mask.expanduser().read_bytes()) if self.mask else None

    def static_dialect(self, endpoints: Sequence[EndpointSettings]) -> DialectName | None:
        """The dialect, where no server has to be asked; None: the server will be."""
        if self.dialect:
            return self.dialect
        urls = [endpoint.server or endpoint.url for endpoint in endpoints]
        return "openai" if is_openai(self.model, urls) else None

    def problem(self, dialect: DialectName) -> str | None:
        """What a dialect does not have, and what to do; None: it has all."""
        unknown = DIALECTS[dialect].unknown(self.parameters, self.mask is not None)
        if unknown:
            return f"{', '.join(unknown)}: dialect {dialect} has no such parameter; leave it out"
        return problem_with(self.model, self.parameters) if dialect == "openai" else None

    def _hashed_settings(self) -> object:
        """Of one model alone; a mask counts by its content."""
        settings = self.model_dump(
            mode="json", exclude={"endpoints", "edit", "references"}, exclude_defaults=True
        )
        return settings | ({"mask": self.mask_image.sha256} if self.mask_image else {})

    @model_validator(mode="after")
    def _check(self) -> "ImagesGeneratorModel":
        if self.edit and self.edit.edit:
            raise ValueError("edit.edit: a generator has two models at most")
        if self.mask and not self.mask.expanduser().is_file():
            raise ValueError(f"mask: there is no file {self.mask}")
        if self.output_compression is not None and self.output_format not in ("jpeg", "webp"):
            raise ValueError("output_compression: set output_format to jpeg or webp as well")
        if self.background == "transparent" and self.output_format == "jpeg":
            raise ValueError("background: jpeg has no transparency; set output_format to png")
        return self
