"""Run in the RL environment: verl's own composition and validation of our overrides.

Reads name -> list of overrides as JSON from standard input. The actor and the rollout also become
verl's dataclasses, which check what Hydra does not.
"""

import json
import sys
from typing import Any

import torch
import torchvision.transforms.v2  # noqa: F401  the environment must have it
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from torch.distributions import Categorical
from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils import torch_functional
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.experimental.torch_functional import FusedLinearForPPO
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
        "entropy": [actor.calculate_entropy, actor.fsdp_config.entropy_from_logits_with_chunking],
        "weights": actor.fsdp_config.model_dtype,
        "fused": actor.use_fused_kernels,
        "mine": OmegaConf.to_container(config.data).get("mine"),
        "attention": _attention(config.actor_rollout_ref.model),
        "pads": not actor.use_remove_padding,
        "entropy_coeff": actor.entropy_coeff,
        "tokens": [actor.ppo_max_token_len_per_gpu, rollout.log_prob_max_token_len_per_gpu],
        "offload": [actor.fsdp_config.param_offload, actor.fsdp_config.optimizer_offload],
        "workers": OmegaConf.to_container(config.ray_kwargs.ray_init.runtime_env),
        "reference": reference,
        "data": config.data.train_files,
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


def _log_probs() -> dict[str, Any]:
    """Of fused kernels with float32 weights, as FSDP has them, and computed directly."""
    torch.manual_seed(0)
    hidden = torch.randn(1, 5, 8, dtype=torch.bfloat16, requires_grad=True)
    weights, labels = torch.randn(11, 8), torch.tensor([[1, 2, 3, 4, 5]])
    logits = hidden.float() @ weights.t()
    plain = logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    with torch.autocast("cpu", torch.bfloat16):
        fused, _ = FusedLinearForPPO()(hidden, weights, labels, temperature=1.0)
    found = {}
    for name, values in {"plain": plain, "fused": fused}.items():
        (gradient,) = torch.autograd.grad(values.sum(), hidden, retain_graph=True)
        found[name] = {"log_probs": values.flatten().tolist()}
        found[name] |= {"gradient": gradient.float().flatten().tolist()}
        found[name] |= {"dtype": str(gradient.dtype).removeprefix("torch.")}
    found["plain"]["entropy"] = Categorical(logits=logits).entropy().flatten().tolist()
    return found | {"entropy": torch_functional.entropy_from_logits(logits).flatten().tolist()}


def main() -> None:
    results: dict[str, Any] = {"log_probs": _log_probs()}
    for name, overrides in json.load(sys.stdin).items():
        try:
            results[name] = parse(overrides)
        except Exception as error:
            results[name] = {"error": str(error)}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
