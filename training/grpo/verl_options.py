"""verl's options: which of them a profile may set under `options`."""

from pydantic import JsonValue

from .hydra import hydra_value, is_option_name, overlap, plain_name

ROLLOUT = "actor_rollout_ref.rollout"
ACTOR = "actor_rollout_ref.actor"
REFERENCE = "actor_rollout_ref.ref"
MODEL = "actor_rollout_ref.model"

# verl's option -> the setting that it is, or follows from.
SETTING_OF = {
    "data.train_batch_size": "batch",
    "data.max_prompt_length": "prompt_length",
    "data.max_response_length": "response_length",
    "trainer.save_freq": "save_every",
    "trainer.nnodes": "nodes",
    f"{ACTOR}.kl_loss_coef": "kl",
    f"{ACTOR}.optim.lr": "learning_rate",
    f"{ACTOR}.ppo_mini_batch_size": "mini_batch",
    f"{ACTOR}.clip_ratio_low": "clip_low",
    f"{ACTOR}.clip_ratio_high": "clip_high",
    f"{ACTOR}.clip_ratio_c": "clip_dual",
    f"{ACTOR}.data_loader_seed": "seed",
    f"{ROLLOUT}.n": "n",
    f"{ROLLOUT}.temperature": "temperature",
    f"{ROLLOUT}.seed": "seed",
}
DERIVED_FROM = {
    "trainer.device": "gpus",
    "trainer.n_gpus_per_node": "gpus",
    "trainer.total_training_steps": "max_steps",
    "trainer.test_freq": "dev_share",
    "trainer.val_before_train": "dev_share",
    "trainer.checkpoint_callback_class": "patience",
    "data.val_max_samples": "dev_share",
    f"{ACTOR}.use_kl_loss": "kl",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": "micro_batch",
    f"{REFERENCE}.log_prob_micro_batch_size_per_gpu": "micro_batch",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": "micro_batch",
    f"{ACTOR}.use_dynamic_bsz": "tokens_per_gpu",
    f"{ACTOR}.ppo_max_token_len_per_gpu": "tokens_per_gpu",
    f"{ROLLOUT}.tensor_model_parallel_size": "tensor_parallel",
    f"{ROLLOUT}.max_model_len": "prompt_length",
    f"{ACTOR}.fsdp_config.param_offload": "offload",
    f"{ACTOR}.fsdp_config.optimizer_offload": "offload",
    f"{MODEL}.override_config.attn_implementation": "attention",
    f"{MODEL}.use_remove_padding": "attention",
    f"{MODEL}.lora_rank": "lora_rank",
    f"{MODEL}.lora_alpha": "lora_alpha",
    f"{MODEL}.use_fused_kernels": "lora_rank",
}
# On these depend the files that the driver reads, resumption, rewards and masking.
_DRIVERS = (
    "algorithm.adv_estimator",
    "data.image_key",
    "data.shuffle",
    "data.train_files",
    "data.val_files",
    "hydra",
    "reward.custom_reward_function",
    "reward.reward_manager",
    "trainer.default_local_dir",
    "trainer.logger",
    "trainer.resume_mode",
    "trainer.total_epochs",
    f"{MODEL}.path",
    f"{MODEL}.lora",
    f"{ROLLOUT}.agent.agent_loop_manager_class",
)


def check_option(key: str, value: JsonValue) -> None:
    """Raises ValueError for an option that the settings or the driver set, or Hydra cannot read."""
    if not is_option_name(key):
        raise ValueError(f"{key!r} is no name of an option, such as {ROLLOUT}.enforce_eager")
    for option, setting in (SETTING_OF | DERIVED_FROM).items():
        if overlap(plain_name(key), option):
            raise ValueError(f"{key} follows from `{setting}`: set that instead, beside `options`")
    if any(overlap(plain_name(key), option) for option in _DRIVERS):
        raise ValueError(f"{key}: the driver sets this, its files and rewards depend on it: remove")
    try:
        hydra_value(value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
