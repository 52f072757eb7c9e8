"""Settings of supervised fine-tuning."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from schemas.yaml_config import ConfigModel


class SftSettings(ConfigModel):
    """A recipe, and changes to it; null: as the recipe says."""

    recipe: Literal["sketch", "paper", "lora"] | Path = Field(
        "sketch",
        description="sketch: a tiny model on two CPU cores; paper: Qwen3-VL-8B on eight GPUs; "
        "lora: the same with adapters on one GPU; or the path of a recipe of your own",
    )
    epochs: float | None = Field(None, gt=0, description="Passes over all rows")
    max_steps: int | None = Field(
        None, ge=1, description="Optimizer steps; where given, they count instead of epochs"
    )
    learning_rate: float | None = Field(None, gt=0, description="Peak learning rate")
    batch: int | None = Field(None, ge=1, description="Samples per optimizer step, over all GPUs")
    batch_per_device: int | None = Field(
        None, ge=1, description="Samples that one device holds at once; the rest is accumulated"
    )
    gpus: int | None = Field(None, ge=0, description="GPUs; 0: trained on the CPU")
    threads: int | None = Field(None, ge=1, description="CPU threads per process")
    cutoff_len: int | None = Field(
        None, ge=1, description="Longest row in tokens; the rest is cut off"
    )
    image_max_pixels: int | None = Field(
        None, ge=1024, description="Larger images are shrunk to this"
    )
    save_steps: int | None = Field(
        None, ge=1, description="Steps between checkpoints: what an interruption loses at most"
    )
    seed: int = Field(
        42, ge=0, description="Seed of the order of the rows and of all other randomness"
    )
    revision: str | None = Field(None, description="Commit of a parent from the Hugging Face hub")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Any other options of LLaMA-Factory, by its names"
    )
