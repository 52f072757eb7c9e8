"""Run in the RL environment: verl's own composition and validation of our overrides.

Reads name -> list of overrides as JSON from standard input. The actor and the rollout also become
verl's dataclasses, which check what Hydra does not.
"""

import json
import sys
from typing import Any

import torchvision.transforms.v2  # noqa: F401  the environment must have it
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.import_utils import load_class_from_fqn
from verl.utils.model import get_hf_auto_model_class
from verl.utils.tracking import Tracking


def parse(overrides: list[str]) -> dict[str, Any]:
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    OmegaConf.resolve(config)
    reference = need_reference_policy(config)
    validate_config(config, use_reference_policy=reference, use_critic=need_critic(config))
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    load_class_from_fqn(rollout.agent.agent_loop_manager_class)
    get_custom_reward_fn(config)
    return {
        "mine": OmegaConf.to_container(config.data).get("mine"),
        "attention": _attention(config.actor_rollout_ref.model),
        "pads": not actor.use_remove_padding,
        "entropy_coeff": actor.entropy_coeff,
        "nodes": config.trainer.nnodes,
        "tokens": [actor.ppo_max_token_len_per_gpu, rollout.log_prob_max_token_len_per_gpu],
        "offload": [actor.fsdp_config.param_offload, actor.fsdp_config.optimizer_offload],
        "workers": OmegaConf.to_container(config.ray_kwargs.ray_init.runtime_env),
        "n": rollout.n,
        "rollout": rollout.name,
        "learning_rate": actor.optim.lr,
        "clip": [actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c],
        "mini_batch": actor.ppo_mini_batch_size,
        "micro_batch": actor.ppo_micro_batch_size_per_gpu,
        "reference": reference,
        "data": config.data.train_files,
        "device": config.trainer.device,
        "evaluation": _evaluation(config),
        "trackers": list(config.trainer.logger),
        "known_trackers": Tracking.supported_backend,
        "run": [config.trainer.project_name, config.trainer.experiment_name],
    }


def _evaluation(config: Any) -> dict[str, Any]:
    return {
        "file": config.data.val_files,
        "rows": config.data.val_max_samples,
        "every": config.trainer.test_freq,
        "before": config.trainer.val_before_train,
        "temperature": config.actor_rollout_ref.rollout.val_kwargs.temperature,
        "n": config.actor_rollout_ref.rollout.val_kwargs.n,
        "kept": config.trainer.max_actor_ckpt_to_keep,
        "callback": type(build_checkpoint_callback(config)).__name__,
    }


def _attention(config: Any) -> str:
    """Of the model as verl loads it; without its weights."""
    model = omega_conf_to_dataclass(config)
    loaded = get_hf_auto_model_class(hf_config=model.hf_config).from_config(model.hf_config)
    return loaded.model.language_model.config._attn_implementation


def main() -> None:
    results = {}
    for name, overrides in json.load(sys.stdin).items():
        try:
            results[name] = parse(overrides)
        except Exception as error:
            results[name] = {"error": str(error)}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
