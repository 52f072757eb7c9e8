"""Settings as verl's command line: `python -m verl.trainer.main_ppo` with Hydra overrides."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .settings import GrpoSettings

PLUGINS = Path(__file__).parent / "plugins"
MASKING = "verl_masking"
CPU = "verl_cpu"
_ROLLOUT = "actor_rollout_ref.rollout"
_ACTOR = "actor_rollout_ref.actor"
_REF = "actor_rollout_ref.ref"
_MODEL = "actor_rollout_ref.model"


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
    """Hydra overrides, one `key=value` each."""
    engine = _gpu(settings) if settings.gpus else _cpu(settings)
    groups = (_algorithm(settings), _data(settings, paths), _model(paths), _actor(settings))
    rest = (_rollout(settings), _run(settings, paths, steps), engine)
    pairs = {key: value for group in (*groups, *rest) for key, value in group.items()}
    return [f"{key}={_hydra_value(value)}" for key, value in pairs.items()]


def _algorithm(settings: GrpoSettings) -> dict[str, Any]:
    return {
        "algorithm.adv_estimator": "masked_grpo",
        "algorithm.use_kl_in_reward": False,
        "algorithm.norm_adv_by_std_in_grpo": True,
    }


def _data(settings: GrpoSettings, paths: RunPaths) -> dict[str, Any]:
    return {
        "data.train_files": paths.data,
        "data.val_files": paths.data,
        "data.val_max_samples": 1,
        "data.image_key": "images",
        "data.train_batch_size": settings.batch,
        "data.max_prompt_length": settings.prompt_length,
        "data.max_response_length": settings.response_length,
        "data.filter_overlong_prompts": False,
        "data.truncation": "error",
        "data.image_patch_size": 16,
        "data.shuffle": False,  # `write_rows` has put them in order
        "data.dataloader_num_workers": 0,
    }


def _model(paths: RunPaths) -> dict[str, Any]:
    return {f"{_MODEL}.path": paths.parent}


def _actor(settings: GrpoSettings) -> dict[str, Any]:
    kl = {
        f"{_ACTOR}.use_kl_loss": settings.kl > 0,
        f"{_ACTOR}.kl_loss_coef": settings.kl,
        f"{_ACTOR}.kl_loss_type": "low_var_kl",
    }
    return kl | {
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_REF}.strategy": "fsdp2",
        f"{_ACTOR}.optim.lr": settings.learning_rate,
        f"{_ACTOR}.optim.weight_decay": 1e-2,
        f"{_ACTOR}.grad_clip": 1.0,
        f"{_ACTOR}.ppo_mini_batch_size": settings.mini_batch,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": settings.pass_size,
        f"{_REF}.log_prob_micro_batch_size_per_gpu": settings.pass_size,
        f"{_ACTOR}.clip_ratio_low": settings.clip_low,
        f"{_ACTOR}.clip_ratio_high": settings.clip_high,
        f"{_ACTOR}.clip_ratio_c": settings.clip_dual,
        f"{_ACTOR}.loss_agg_mode": "token-mean",
        f"{_ACTOR}.calculate_entropy": True,
        f"{_ACTOR}.data_loader_seed": settings.seed,
    }


def _rollout(settings: GrpoSettings) -> dict[str, Any]:
    return {
        f"{_ROLLOUT}.n": settings.n,
        f"{_ROLLOUT}.temperature": settings.temperature,
        f"{_ROLLOUT}.top_p": 1.0,
        f"{_ROLLOUT}.top_k": -1,
        f"{_ROLLOUT}.seed": settings.seed,
        f"{_ROLLOUT}.calculate_log_probs": True,
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": settings.pass_size,
    }


def _run(settings: GrpoSettings, paths: RunPaths, steps: int) -> dict[str, Any]:
    return {
        "hydra.run.dir": paths.hydra,
        "reward.custom_reward_function.path": paths.reward_function,
        "reward.custom_reward_function.name": "compute_score",
        "reward.reward_manager.name": "masking",
        "trainer.project_name": "interleave",
        "trainer.experiment_name": "critic_rl",
        "trainer.logger": ["console", "file"],
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": max(settings.gpus, 1),
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": steps,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": settings.save_every,
        "trainer.max_actor_ckpt_to_keep": 2,
        "trainer.resume_mode": "auto",
        "trainer.default_local_dir": paths.checkpoints,
        "+ray_kwargs.ray_init.include_dashboard": False,
    }


def _gpu(settings: GrpoSettings) -> dict[str, Any]:
    """The reference's engine: FSDP in bfloat16, rollouts by vLLM."""
    return {
        "trainer.device": "cuda",
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.tensor_model_parallel_size": min(settings.tensor_parallel, settings.gpus),
        f"{_ROLLOUT}.gpu_memory_utilization": 0.6,
        f"+{_ROLLOUT}.limit_images": 2,
        f"{_MODEL}.use_remove_padding": True,
        f"{_MODEL}.enable_gradient_checkpointing": True,
        f"{_ACTOR}.fsdp_config.param_offload": False,
        f"{_REF}.fsdp_config.param_offload": True,
        "reward.num_workers": 8,
    }


def _cpu(settings: GrpoSettings) -> dict[str, Any]:
    """One worker in single precision, and the batched rollout server of `verl_cpu`.

    The server's log-probabilities are those of the trainer's weights, to rounding, so they are
    the old ones of the ratio (verl's bypass mode) and no extra pass over the batch is needed.
    """
    single = {
        f"{part}.{key}": value
        for part in (_ACTOR, _REF)
        for key, value in {
            "fsdp_config.model_dtype": "fp32",
            "fsdp_config.use_torch_compile": False,
            "use_torch_compile": False,
        }.items()
    }
    mixed = {f"+{part}.fsdp_config.mixed_precision.param_dtype": "fp32" for part in (_ACTOR, _REF)}
    ray = {
        # Logical slots: verl asks for one accelerator, and for more workers than there are cores.
        "+ray_kwargs.ray_init.num_gpus": 1,
        "ray_kwargs.ray_init.num_cpus": 32,
        "+ray_kwargs.ray_init.object_store_memory": 400_000_000,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    server = {
        f"{_ROLLOUT}.name": "batched_cpu",
        f"{_ROLLOUT}.load_format": "auto",
        f"{_ROLLOUT}.tensor_model_parallel_size": 1,
        f"{_ROLLOUT}.n_gpus_per_node": 1,
        f"{_ROLLOUT}.free_cache_engine": False,
        f"{_ROLLOUT}.max_num_seqs": settings.batch * settings.n,
        f"{_ROLLOUT}.agent.num_workers": 1,
    }
    model = {
        f"{_MODEL}.use_remove_padding": False,
        f"{_MODEL}.enable_gradient_checkpointing": False,
        f"+{_MODEL}.override_config.attn_implementation": "sdpa",
    }
    bypass = {"algorithm.rollout_correction.bypass_mode": True}
    one = {"trainer.device": "cpu", "reward.num_workers": 1}
    return one | single | mixed | ray | server | model | bypass


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
