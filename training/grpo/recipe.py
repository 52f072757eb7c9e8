"""Settings of GRPO, and the command line of verl that they become: Hydra overrides."""

from math import gcd
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from schemas.yaml_config import ConfigModel

from ..rewards.reward import RewardSettings

PLUGINS = Path(__file__).parent / "plugins"
ROWS = "critic_rl.parquet"
CHECKPOINTS = "checkpoints"
_REWARD_FUNCTION = Path(__file__).parents[1] / "rewards" / "verl_client.py"
_FIXED = Path(__file__).parent / "overrides"
_ROLLOUT = "actor_rollout_ref.rollout"
_ACTOR = "actor_rollout_ref.actor"

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

    recipe: Literal["sketch", "paper"] = Field(
        "sketch", description="sketch: CPU, tiny model; paper: Qwen3-VL-8B"
    )
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


def program(settings: GrpoSettings) -> str:
    """The trainer's main module."""
    return "verl.trainer.main_ppo" if settings.gpus else "verl_forked"


def environment(settings: GrpoSettings) -> dict[str, str]:
    """Environment variables of the trainer that do not depend on the job."""
    modules = "verl_masking" if settings.gpus else "verl_cpu,verl_masking"
    common = {
        "PYTHONPATH": str(PLUGINS),
        "VERL_USE_EXTERNAL_MODULES": modules,
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "HYDRA_FULL_ERROR": "1",
    }
    if settings.gpus:
        return common
    threads = {
        "OMP_NUM_THREADS": str(settings.threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # idle threads sleep: trainer and rollouts share the cores
        "ROLLOUT_THREADS": str(settings.rollout_threads),
    }
    # Ray sets OMP_NUM_THREADS to a worker's CPUs unless it is set; VERL_PLATFORM picks the plugin.
    return common | threads | {"VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1"}


def overrides(settings: GrpoSettings, parent: Path, folder: Path, steps: int) -> list[str]:
    """Hydra overrides, one `key=value` each: fixed ones from `overrides/`, then the settings'.

    Args:
        parent: the model that is trained.
        folder: the job's; verl reads `ROWS` there, and writes below it.
        steps: of the complete run, resumed or not.
    """
    fixed = _fixed("common") | _fixed("gpu" if settings.gpus else "cpu")
    pairs = fixed | _changes(settings, parent, folder, steps)
    return [f"{key}={_hydra_value(value)}" for key, value in pairs.items()]


def _fixed(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((_FIXED / f"{name}.yaml").read_text("utf-8"))
    return content


def _changes(settings: GrpoSettings, parent: Path, folder: Path, steps: int) -> dict[str, Any]:
    if settings.gpus:
        shared = min(settings.tensor_parallel, settings.gpus)
        size = {f"{_ROLLOUT}.tensor_model_parallel_size": shared}
    else:
        size = {f"{_ROLLOUT}.max_num_seqs": settings.batch * settings.n}
    return {
        "data.train_files": folder / ROWS,
        "data.val_files": folder / ROWS,
        "data.train_batch_size": settings.batch,
        "data.max_prompt_length": settings.prompt_length,
        "data.max_response_length": settings.response_length,
        "actor_rollout_ref.model.path": parent,
        "hydra.run.dir": folder / "hydra",
        "reward.custom_reward_function.path": _REWARD_FUNCTION,
        "trainer.n_gpus_per_node": max(settings.gpus, 1),
        "trainer.total_training_steps": steps,
        "trainer.save_freq": settings.save_every,
        "trainer.default_local_dir": folder / CHECKPOINTS,
        f"{_ACTOR}.use_kl_loss": settings.kl > 0,
        f"{_ACTOR}.kl_loss_coef": settings.kl,
        f"{_ACTOR}.optim.lr": settings.learning_rate,
        f"{_ACTOR}.ppo_mini_batch_size": settings.mini_batch,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": settings.pass_size,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": settings.pass_size,
        f"{_ACTOR}.clip_ratio_low": settings.clip_low,
        f"{_ACTOR}.clip_ratio_high": settings.clip_high,
        f"{_ACTOR}.clip_ratio_c": settings.clip_dual,
        f"{_ACTOR}.data_loader_seed": settings.seed,
        **size,
        f"{_ROLLOUT}.n": settings.n,
        f"{_ROLLOUT}.temperature": settings.temperature,
        f"{_ROLLOUT}.seed": settings.seed,
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": settings.pass_size,
    }


def _hydra_value(value: Any) -> str:
    """A value in Hydra's grammar; paths are quoted, since they may have any character."""
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    if isinstance(value, Path):
        escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return str(value)
