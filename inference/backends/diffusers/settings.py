"""What may be set about the `diffusers` backend: which model, how it draws, where."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from .sampling_params import SamplingParams


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
        4, ge=1, description="Pictures drawn at once, at most; halved where memory does not suffice"
    )
    gather_seconds: float = Field(
        0.05, ge=0, description="How long the first request of a batch waits for others"
    )
    canvas: Literal["white"] | None = Field(
        "white",
        description="What a model that only edits starts from where there is no picture yet; null: "
        "it refuses",
    )
