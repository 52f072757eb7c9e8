"""Profile settings of the `diffusers` backend: model, sampling parameters, device."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.yaml_config import ConfigModel

SIZE_PATTERN = r"^[1-9]\d*x[1-9]\d*$"


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
        pattern=SIZE_PATTERN,
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
        values = {name: getattr(self, name) for name in SamplingParams.model_fields}
        set_values = {name: value for name, value in values.items() if value is not None}
        return SamplingParams(**(dict(defaults) | set_values))


class DiffusersSettings(SamplingParams):
    """A generator in this process. A batch is filled only if `limits.generator` is as large."""

    model: str = Field(
        "flux2-klein-9b",
        description="A name that `interleave generator list` shows, or the folder of a pipeline",
    )
    revision: str | None = Field(
        None, description="Another commit, tag or branch of it; null: the registry's"
    )
    registry: Path | None = Field(None, description="A YAML file with more models; null: none")
    device: str = Field(
        "auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto: cuda where there is one"
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        "auto", description="Of the weights; auto: bfloat16 on a GPU, float32 on a CPU"
    )
    batch: int = Field(
        4, ge=1, description="Images drawn at once, at most; halved where memory does not suffice"
    )
    gather_seconds: float = Field(
        0.05, ge=0, description="How long the first request of a batch waits for others"
    )
    canvas: Literal["white"] | None = Field(
        "white",
        description="Initial image for a model that only edits; null: it rejects prompts without "
        "an image",
    )
