"""Settings as verl's command line: `python -m verl.trainer.main_ppo` with Hydra overrides."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .settings import GrpoSettings

PLUGINS = Path(__file__).parent / "plugins"
MASKING = "verl_masking"
CPU = "verl_cpu"
_FIXED = Path(__file__).parent / "overrides"
_ROLLOUT = "actor_rollout_ref.rollout"
_ACTOR = "actor_rollout_ref.actor"


@dataclass(frozen=True)
class RunPaths:
    """What verl reads and writes."""

    parent: Path
    data: Path
    checkpoints: Path
    hydra: Path
    reward_function: Path


def training_command(
    python: Path, settings: GrpoSettings, paths: RunPaths, steps: int
) -> list[str]:
    """The training command; `steps` counts the complete run, resumed or not."""
    return [str(python), "-m", "verl.trainer.main_ppo", *overrides(settings, paths, steps)]


def environment(settings: GrpoSettings) -> dict[str, str]:
    """Environment variables of the trainer that do not depend on the job."""
    modules = (MASKING,) if settings.gpus else (CPU, MASKING)
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
        "ROLLOUT_THREADS": str(settings.rollout_threads),
    }
    # Ray sets OMP_NUM_THREADS to a worker's CPUs unless it is set; VERL_PLATFORM picks the plugin.
    return common | threads | {"VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1"}


def overrides(settings: GrpoSettings, paths: RunPaths, steps: int) -> list[str]:
    """Hydra overrides, one `key=value` each: fixed ones from `overrides/`, then the settings'."""
    fixed = _fixed("common") | _fixed("gpu" if settings.gpus else "cpu")
    pairs = fixed | _run(settings, paths, steps) | _actor(settings) | _rollout(settings)
    return [f"{key}={_hydra_value(value)}" for key, value in pairs.items()]


def _fixed(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((_FIXED / f"{name}.yaml").read_text("utf-8"))
    return content


def _run(settings: GrpoSettings, paths: RunPaths, steps: int) -> dict[str, Any]:
    return {
        "data.train_files": paths.data,
        "data.val_files": paths.data,
        "data.train_batch_size": settings.batch,
        "data.max_prompt_length": settings.prompt_length,
        "data.max_response_length": settings.response_length,
        "actor_rollout_ref.model.path": paths.parent,
        "hydra.run.dir": paths.hydra,
        "reward.custom_reward_function.path": paths.reward_function,
        "trainer.n_gpus_per_node": max(settings.gpus, 1),
        "trainer.total_training_steps": steps,
        "trainer.save_freq": settings.save_every,
        "trainer.default_local_dir": paths.checkpoints,
    }


def _actor(settings: GrpoSettings) -> dict[str, Any]:
    return {
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
    }


def _rollout(settings: GrpoSettings) -> dict[str, Any]:
    if settings.gpus:
        shared = min(settings.tensor_parallel, settings.gpus)
        size = {f"{_ROLLOUT}.tensor_model_parallel_size": shared}
    else:
        size = {f"{_ROLLOUT}.max_num_seqs": settings.batch * settings.n}
    return {
        **size,
        f"{_ROLLOUT}.n": settings.n,
        f"{_ROLLOUT}.temperature": settings.temperature,
        f"{_ROLLOUT}.seed": settings.seed,
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": settings.pass_size,
    }


def _hydra_value(value: Any) -> str:
    """A value in Hydra's grammar; paths are quoted, since they may have any character."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    if isinstance(value, Path):
        escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return str(value)
