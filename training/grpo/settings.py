"""Settings of GRPO: the algorithm's, and those of the machine it runs on."""

from math import gcd
from typing import Any, Literal

from pydantic import Field, model_validator

from schemas.yaml_config import ConfigModel

from ..rewards.settings import RewardSettings

Recipe = Literal["sketch", "paper"]

# Defaults of the recipe `paper` (section 4.1, and the published code: 8 GPUs, Qwen3-VL-8B). The
# fields' own are the sketch's, for a few million parameters on a CPU.
_PAPER: dict[str, Any] = {
    "learning_rate": 2e-6,
    "prompt_length": 16384,
    "response_length": 4096,
    "image_max_pixels": 1048576,
    "max_steps": None,
    "save_every": 50,
    "micro_batch": 2,
    "gpus": 8,
}


class GrpoSettings(ConfigModel):
    """GRPO (paper, section 4.1). A field that is not set is the recipe's."""

    recipe: Recipe = Field("sketch", description="sketch: CPU, tiny model; paper: Qwen3-VL-8B")
    n: int = Field(8, ge=2, description="Rollouts of a prompt: the group that is compared")
    batch: int = Field(16, ge=1, description="Prompts of a step")
    mini_batch: int = Field(8, ge=1, description="Prompts of an update of the weights")
    learning_rate: float = Field(5e-5, gt=0, description="Learning rate of AdamW, constant")
    clip_low: float = Field(0.2, gt=0, lt=1, description="Clip of the ratio below 1")
    clip_high: float = Field(0.3, gt=0, description="Clip of the ratio above 1")
    clip_dual: float = Field(
        3.0, gt=1, description="Bound of the loss where advantages are negative"
    )
    kl: float = Field(
        0.0,
        ge=0,
        description="Weight of the divergence from the parent. 0 as in the published code, which "
        "has no reference model; the paper says 1e-3",
    )
    temperature: float = Field(1.0, gt=0, description="Temperature of the rollouts")
    max_steps: int | None = Field(60, ge=1, description="Steps at most; null: one epoch")
    save_every: int = Field(10, ge=1, description="Steps between checkpoints")
    prompt_length: int = Field(512, ge=1, description="Longest prompt in tokens, pictures included")
    response_length: int = Field(256, ge=1, description="Longest response in tokens")
    image_max_pixels: int = Field(
        9216, ge=1024, description="Larger pictures are shrunk to this, as in SFT"
    )
    seed: int = Field(0, description="Seed of the order of the rows and of the rollouts")
    micro_batch: int = Field(
        64, ge=1, description="Sequences of one forward and backward pass on a device, at most"
    )
    gpus: int = Field(0, ge=0, description="GPUs; 0: the CPU engine")
    tensor_parallel: int = Field(
        4, ge=1, description="GPUs that share one copy of the rollout model"
    )
    threads: int = Field(2, ge=1, description="CPU only: threads of an update")
    rollout_threads: int = Field(
        1, ge=1, description="CPU only: threads of the rollouts, beside rewards"
    )
    reward: RewardSettings = Field(RewardSettings(), description="How rollouts are rewarded")

    @model_validator(mode="before")
    @classmethod
    def _fill_from_recipe(cls, values: Any) -> Any:
        """Fields that are not set are the paper's, where that recipe is named."""
        paper = isinstance(values, dict) and values.get("recipe") == "paper"
        return _PAPER | values if paper else values

    @model_validator(mode="after")
    def _updates_fit(self) -> "GrpoSettings":
        if self.batch % self.mini_batch:
            raise ValueError(f"mini_batch {self.mini_batch} must divide batch {self.batch}")
        return self

    @property
    def pass_size(self) -> int:
        """Sequences of a pass: the greatest that divides `micro_batch` and a device's update."""
        return gcd(self.micro_batch, self.mini_batch * self.n // max(self.gpus, 1) or 1)
