"""Settings of GRPO, and the command line of verl that they become: Hydra overrides."""

import shlex
from collections.abc import Mapping
from math import gcd
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, JsonValue, field_validator, model_validator

from inference.environments import Extra
from schemas.yaml_config import ConfigModel

from ..base_model import StartModel
from ..rewards.reward import PlanRewardSettings, RewardLimits, RewardSettings
from ..tracking import OFFLINE, TrackingSettings
from .verl_options import (
    ACTOR,
    MODEL,
    REFERENCE,
    ROLLOUT,
    SETTING_OF,
    check_option,
    override_list,
    plain_name,
)

PLUGINS = Path(__file__).parent / "plugins"
ROWS, DEV_ROWS = "rows.parquet", "dev_rows.parquet"  # in the job's folder
CANDIDATES = "candidates.parquet"  # there, too: the rows that it chooses from
CHECKPOINTS = "checkpoints"
STOP = "stop"  # a file beside the checkpoints that asks verl to end
REWARD_ADDRESS = "reward-address.json"  # in the job's folder while the reward server runs
Attention = Literal["sdpa", "flash_attention_2"]
_REWARD_FUNCTION = Path(__file__).parents[1] / "rewards" / "verl_client.py"
_FIXED = Path(__file__).parent / "overrides"
_RAY = "ray_kwargs.ray_init"
_KEPT = "trainer.max_actor_ckpt_to_keep"
_REMOVED = "trainer.remove_previous_ckpt_in_save"
_CANDIDATE_ANSWERS = 4  # of each: enough to tell "always" from "half of the time"
_CANDIDATE_BATCH = 256  # rows that are answered at once

_RECIPES: dict[str, dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("recipes.yaml").read_text("utf-8")
)


class GrpoSettings(ConfigModel):
    """GRPO (paper, section 4.1). A field that is not set is the recipe's."""

    recipe: Literal["sketch", "paper", "lora"] = Field(
        "sketch",
        description="sketch: CPU, tiny model; paper: Qwen3-VL-8B with the paper's numbers; lora: "
        "the paper's with adapters on one GPU, at ten times the learning rate",
    )
    n: int = Field(8, ge=2, description="Rollouts of a prompt: the group that is compared")
    batch: int = Field(16, ge=1, description="Prompts of a step")
    mini_batch: int = Field(8, ge=1, description="Prompts of an update of the weights")
    learning_rate: float = Field(5e-5, gt=0, description="Learning rate of AdamW, constant")
    clip_low: float = Field(0.2, gt=0, lt=1, description="Clip of the ratio below 1")
    clip_high: float = Field(0.3, gt=0, description="Clip of the ratio above 1")
    clip_dual: float = Field(3.0, gt=1, description="Bound of the loss at negative advantages")
    kl: float = Field(
        0.0,
        ge=0,
        description="Weight of the divergence from the parent: 1e-3 in the paper; 0, without a "
        "reference model, in the published code and in the sketch's recipe",
    )
    temperature: float = Field(1.0, gt=0, description="Temperature of the rollouts")
    max_steps: int | None = Field(60, ge=1, description="Steps at most; null: one epoch")
    candidates: int = Field(
        1,
        ge=1,
        description="Rows to choose from for each that is trained on: the parent answers each four "
        "times, nothing is drawn, and those are kept that are right nearest to half of the time; "
        "1: none are answered",
    )
    save_every: int = Field(10, ge=1, description="Steps between checkpoints")
    prompt_length: int = Field(512, ge=1, description="Longest prompt in tokens, pictures included")
    response_length: int = Field(256, ge=1, description="Longest response in tokens")
    start: StartModel | None = Field(
        None,
        description="A model that was not trained here, to start from instead of the supervised "
        "one",
    )
    dev_share: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="Share of the prompts whose rows are not trained on: the reward of an answer "
        "to each, at every checkpoint, chooses the checkpoint that is kept; 0: the last one is",
    )
    patience: int | None = Field(
        None, ge=1, description="Evaluations without a higher reward after which training stops"
    )
    parent_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the parent's weights in the model that is kept, averaged with the "
        "trained ones by the rest: less is forgotten of what the parent knew; 0: none",
    )
    image_max_pixels: int = Field(9216, ge=1024, description="Larger pictures are shrunk to this")
    seed: int = Field(0, description="Seed of the order of the rows and of the rollouts")
    micro_batch: int = Field(
        64, ge=1, description="Sequences of one forward and backward pass on a device, at most"
    )
    tokens_per_gpu: int | None = Field(
        None,
        ge=1,
        description="Tokens of a pass on a device, at most; as many sequences as fit, instead of "
        "`micro_batch`",
    )
    gpus: int = Field(0, ge=0, description="GPUs of a node; 0: the CPU engine")
    nodes: int = Field(1, ge=1, description="Nodes with so many GPUs; above 1: of a Ray cluster")
    cluster: bool = Field(
        False,
        description="Train on the Ray cluster that RAY_ADDRESS names, instead of a Ray of the "
        "training's own; always so with several nodes",
    )
    tensor_parallel: int = Field(
        4, ge=1, description="GPUs that share one copy of the rollout model, at most all of a node"
    )
    attention: Attention | None = Field(
        None,
        description="flash_attention_2: without padding; its package is added to the trainer's "
        "environment. null: so where it is installed there already, else sdpa",
    )
    lora_rank: int = Field(0, ge=0, description="Rank of the language model's LoRA; 0: no LoRA")
    offload: bool = Field(False, description="Idle weights and optimizer wait in main memory")
    threads: int = Field(2, ge=1, description="CPU only: threads of an update")
    reward: RewardLimits = Field(RewardLimits(), description="How rollouts are rewarded")
    options: dict[str, JsonValue] = Field(
        {},
        description="Any other options of verl, by their dotted names; `+` before a name adds one "
        "that its configuration does not list",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_recipe(cls, values: Any) -> Any:
        """Fields that are not set are those of the recipe that is named."""
        name = values.get("recipe") if isinstance(values, dict) else None
        recipe = _RECIPES.get(name) if isinstance(name, str) else None
        if recipe is None:
            return values
        reward = values.get("reward", {})
        if isinstance(reward, dict):
            values = {**values, "reward": recipe["reward"] | reward}
        return recipe | values

    @field_validator("options")
    @classmethod
    def _leave_ours(cls, options: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for key, value in options.items():
            check_option(key, value)
        return options

    @model_validator(mode="after")
    def _batches_fit(self) -> "GrpoSettings":
        if self.batch % self.mini_batch:
            raise ValueError(f"mini_batch {self.mini_batch} must divide batch {self.batch}")
        if self.mini_batch * self.n % self.devices:
            raise ValueError(
                f"the {self.mini_batch * self.n} rollouts of an update (mini_batch times n) cannot "
                f"be shared evenly by {self.devices} GPUs: change mini_batch, n, gpus or nodes"
            )
        if self.tokens_per_gpu and self.tokens_per_gpu < self.longest:
            raise ValueError(
                f"tokens_per_gpu {self.tokens_per_gpu} is less than the longest sequence: set it "
                f"to {self.longest} (prompt_length plus response_length) or more"
            )
        return self

    @model_validator(mode="after")
    def _stops_by_an_evaluation(self) -> "GrpoSettings":
        if self.patience and not self.dev_share:
            raise ValueError("patience counts evaluations: set dev_share, or leave patience out")
        removing = [key for key in self.options if plain_name(key) in (_KEPT, _REMOVED)]
        if self.dev_share and removing:
            raise ValueError(
                f"options.{removing[0]}: with dev_share the best and the newest are kept: remove"
            )
        return self

    @model_validator(mode="after")
    def _devices_fit(self) -> "GrpoSettings":
        needs_gpus = {"nodes": self.nodes > 1, "cluster": self.cluster, "offload": self.offload}
        for name, wanted in needs_gpus.items():
            if wanted and not self.gpus:
                raise ValueError(f"{name} is for GPUs: set gpus, or leave {name} out")
        if self.gpus % self.rollout_gpus:
            fitting = [str(size) for size in range(1, self.gpus + 1) if not self.gpus % size]
            raise ValueError(
                f"tensor_parallel {self.tensor_parallel} does not divide the {self.gpus} GPUs of a "
                f"node: set it to {', '.join(fitting[:-1])} or {fitting[-1]}"
            )
        return self

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return self.prompt_length + self.response_length

    @property
    def devices(self) -> int:
        """Processes that train: one a GPU, or one on the CPU."""
        return max(self.gpus * self.nodes, 1)

    @property
    def rollout_gpus(self) -> int:
        """GPUs that share one copy of the rollout model."""
        return min(self.tensor_parallel, max(self.gpus, 1))

    @property
    def environment_extra(self) -> Extra | None:
        """What the trainer's environment needs besides its pins."""
        return "flash" if self.gpus and self.attention == "flash_attention_2" else None

    @property
    def on_cluster(self) -> bool:
        """Whether it trains on a Ray that exists already."""
        return self.cluster or self.nodes > 1

    @property
    def plays_episodes(self) -> bool:
        """Whether a rollout has several answers, to one image after the other."""
        return getattr(self.reward, "of", None) == "episode"

    @property
    def pass_size(self) -> int:
        """Sequences of a pass: the greatest that divides `micro_batch` and a device's update."""
        return gcd(self.micro_batch, self.mini_batch * self.n // self.devices)


class CriticGrpoSettings(GrpoSettings):
    """GRPO of the critic."""

    recipe: Literal["sketch", "paper", "lora", "reference"] = Field(  # type: ignore[assignment]
        "sketch",
        description="As for the planner; reference: the paper's with the numbers of its published "
        "code (no divergence, reward form `code`)",
    )
    reward: RewardSettings = Field(RewardSettings(), description="How rollouts are rewarded")


class PlannerGrpoSettings(GrpoSettings):
    """GRPO of the planner, which the paper does not have."""

    reward: PlanRewardSettings = Field(PlanRewardSettings(), description="How plans are rewarded")


def program(settings: GrpoSettings) -> str:
    """The trainer's main module."""
    return "verl.trainer.main_ppo" if settings.gpus else "verl_forked"


def environment(settings: GrpoSettings) -> dict[str, str]:
    """Environment variables of the trainer that do not depend on the job."""
    on_cpu = [] if settings.gpus else ["verl_cpu"]
    modules = [*on_cpu, "verl_masking", "verl_patches"]
    common = {
        "PYTHONPATH": str(PLUGINS),
        "VERL_USE_EXTERNAL_MODULES": ",".join(modules),
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "HYDRA_FULL_ERROR": "1",
    }
    if settings.gpus:
        return common
    threads = {
        "OMP_NUM_THREADS": str(settings.threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # idle threads sleep: trainer and rollouts share the cores
    }
    # Ray sets OMP_NUM_THREADS to a worker's CPUs unless it is set; VERL_PLATFORM picks the plugin.
    return common | threads | {"VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1"}


def overrides(
    settings: GrpoSettings,
    parent: Path,
    folder: Path,
    steps: int,
    attention: Attention = "sdpa",
    tracking: TrackingSettings = OFFLINE,
) -> list[str]:
    """Hydra overrides, one `key=value` each: fixed ones, the settings', and its `options`.

    Args:
        parent: the model that is trained.
        folder: the job's; verl reads `ROWS` there, and writes below it.
        steps: of the complete run, resumed or not.
        attention: on GPUs, where the settings name none.
    """
    pairs = _fixed("common") | _fixed("gpu" if settings.gpus else "cpu")
    pairs |= _paths(parent, folder) | _changes(settings, steps) | _evaluations(settings, folder)
    pairs |= {
        "trainer.logger": ["console", "file", *({tracking.kind} - {"none"})],
        "trainer.project_name": tracking.project,
        "trainer.experiment_name": f"{folder.parent.name}-{folder.name}",
    }
    pairs |= _devices(settings, settings.attention or attention) | _memory(settings)
    if settings.plays_episodes:
        pairs[f"{ROLLOUT}.agent.agent_loop_config_path"] = PLUGINS / "agent_loops.yaml"
        pairs[f"{ROLLOUT}.agent.default_agent_loop"] = "episode"
        known = "+reward.custom_reward_function.reward_kwargs"
        pairs[f"{known}.image_max_pixels"] = settings.image_max_pixels
    names = {plain_name(key): key for key in pairs}
    options = {names.get(plain_name(key), key): value for key, value in settings.options.items()}
    return override_list(pairs | options)


def cluster_overrides(python: Path, variables: Mapping[str, str]) -> list[str]:
    """Hydra overrides for a Ray whose workers do not inherit the trainer's environment.

    Args:
        python: interpreter of the trainer's environment, at the same path on every node.
        variables: environment variables of the workers. verl logs them: none is a secret.
    """
    pairs = {f"++{_RAY}.runtime_env.env_vars.{name}": value for name, value in variables.items()}
    return override_list({f"++{_RAY}.runtime_env.py_executable": shlex.quote(str(python)), **pairs})


def candidate_overrides(settings: GrpoSettings, folder: Path) -> list[str]:
    """Further overrides, with which verl samples answers to the candidates and trains nothing."""
    sampling = {"n": _CANDIDATE_ANSWERS, "do_sample": True, "temperature": settings.temperature}
    pairs = {f"{ROLLOUT}.val_kwargs.{name}": value for name, value in sampling.items()} | {
        "data.train_files": folder / CANDIDATES,
        "data.val_files": folder / CANDIDATES,
        "data.val_max_samples": -1,
        "data.val_batch_size": _CANDIDATE_BATCH,
        "trainer.val_before_train": True,
        "trainer.val_only": True,
        "trainer.logger": ["console"],
    }
    return override_list(pairs)


def _fixed(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((_FIXED / f"{name}.yaml").read_text("utf-8"))
    return content


def _paths(parent: Path, folder: Path) -> dict[str, Any]:
    return {
        "data.train_files": folder / ROWS,
        "data.val_files": folder / ROWS,
        f"{MODEL}.path": parent,
        "hydra.run.dir": folder / "hydra",
        "reward.custom_reward_function.path": _REWARD_FUNCTION,
        "+reward.custom_reward_function.reward_kwargs.address": folder / REWARD_ADDRESS,
        "trainer.default_local_dir": folder / CHECKPOINTS,
    }


def _changes(settings: GrpoSettings, steps: int) -> dict[str, Any]:
    return {option: getattr(settings, name) for option, name in SETTING_OF.items()} | {
        "trainer.n_gpus_per_node": max(settings.gpus, 1),
        "trainer.total_training_steps": steps,
        f"{ACTOR}.use_kl_loss": settings.kl > 0,
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": settings.pass_size,
        f"{REFERENCE}.log_prob_micro_batch_size_per_gpu": settings.pass_size,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": settings.pass_size,
    }


def _evaluations(settings: GrpoSettings, folder: Path) -> dict[str, Any]:
    """Greedy answers, verl's default, to rows that are not trained on, at every checkpoint."""
    if not settings.dev_share:
        return {}
    stop = {"trainer.checkpoint_callback_class": "verl_stop.StopOnRequest"}
    return {
        "data.val_files": folder / DEV_ROWS,
        "data.val_max_samples": -1,
        "trainer.test_freq": settings.save_every,
        _KEPT: None,  # the driver removes those that are neither the best nor the newest
        **(stop if settings.patience else {}),
    }


def _devices(settings: GrpoSettings, attention: Attention) -> dict[str, Any]:
    if not settings.gpus:
        return {f"{ROLLOUT}.max_num_seqs": settings.batch * settings.n}
    # verl waits forever for more CPUs than Ray has: three a GPU, and one for each storage unit and
    # some more. They are logical; a Ray that is there already has its own number.
    cpus = {} if settings.on_cluster else {"ray_kwargs.ray_init.num_cpus": 16 + 4 * settings.gpus}
    return cpus | {
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 2 * settings.nodes,
        # Else vLLM makes room for all positions of the model: 36 GiB for 262,144 of Qwen3-VL-8B.
        f"{ROLLOUT}.max_model_len": settings.longest,
        f"{ROLLOUT}.tensor_model_parallel_size": settings.rollout_gpus,
        f"+{MODEL}.override_config.attn_implementation": attention,
        # Sequences in one row, without padding: only flash attention keeps them apart.
        f"{MODEL}.use_remove_padding": attention == "flash_attention_2",
    }


def _memory(settings: GrpoSettings) -> dict[str, Any]:
    """Options for less memory; none by default."""
    options: dict[str, Any] = {}
    if settings.tokens_per_gpu:
        options |= {
            f"{ACTOR}.use_dynamic_bsz": True,
            f"{ACTOR}.ppo_max_token_len_per_gpu": settings.tokens_per_gpu,
        }
    if settings.offload:
        options |= {
            f"{ACTOR}.fsdp_config.param_offload": True,
            f"{ACTOR}.fsdp_config.optimizer_offload": True,
        }
    if settings.lora_rank:
        options |= {
            f"{MODEL}.lora_rank": settings.lora_rank,
            f"{MODEL}.lora_alpha": 2 * settings.lora_rank,
            f"{MODEL}.exclude_modules": ".*visual.*",
            # Rollouts are sampled from merged weights, whatever their engine knows of adapters.
            f"{MODEL}.lora.merge": True,
            # No logits of whole sequences. Only with a frozen head: on several GPUs verl 0.9.1 does
            # not add up the gradients that fused kernels give a trained one.
            f"{MODEL}.use_fused_kernels": True,
        }
    return options
