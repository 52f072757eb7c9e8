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
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config


def parse(overrides: list[str]) -> dict[str, Any]:
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    OmegaConf.resolve(config)
    reference = need_reference_policy(config)
    validate_config(config, use_reference_policy=reference, use_critic=need_critic(config))
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    return {
        "n": rollout.n,
        "rollout": rollout.name,
        "learning_rate": actor.optim.lr,
        "clip": [actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c],
        "mini_batch": actor.ppo_mini_batch_size,
        "micro_batch": actor.ppo_micro_batch_size_per_gpu,
        "reference": reference,
        "data": config.data.train_files,
        "device": config.trainer.device,
    }


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
