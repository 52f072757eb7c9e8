"""Settings of GRPO and the command line that they become."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from training.grpo.recipe import GrpoSettings, environment, overrides

PATHS = (Path("/models/m"), Path("/a b/it's"))
ACTOR = "actor_rollout_ref.actor"


def options(settings: GrpoSettings) -> dict[str, str]:
    return dict(line.split("=", 1) for line in overrides(settings, *PATHS, steps=7))


def test_the_paper_profile_has_the_references_numbers():
    line = options(GrpoSettings(recipe="paper"))
    expected = {
        "actor_rollout_ref.rollout.n": "8",
        "data.train_batch_size": "16",
        f"{ACTOR}.ppo_mini_batch_size": "8",
        f"{ACTOR}.optim.lr": "2e-06",
        f"{ACTOR}.optim.weight_decay": "0.01",
        f"{ACTOR}.clip_ratio_low": "0.2",
        f"{ACTOR}.clip_ratio_high": "0.3",
        f"{ACTOR}.clip_ratio_c": "3.0",
        f"{ACTOR}.loss_agg_mode": "token-mean",
        "actor_rollout_ref.rollout.temperature": "1.0",
        "data.max_prompt_length": "16384",
        "data.max_response_length": "4096",
        f"{ACTOR}.use_kl_loss": "False",
        "trainer.device": "cuda",
        "trainer.n_gpus_per_node": "8",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": "4",
    }
    assert {key: line[key] for key in expected} == expected


def test_set_fields_override_the_recipe():
    settings = GrpoSettings(recipe="paper", learning_rate=1e-6, gpus=2)
    assert (settings.learning_rate, settings.gpus, settings.response_length) == (1e-6, 2, 4096)
    assert GrpoSettings.model_validate(settings.model_dump()) == settings


def test_divergence_from_the_parent_is_one_setting():
    line = options(GrpoSettings(kl=1e-3))
    assert line[f"{ACTOR}.use_kl_loss"] == "True"
    assert line[f"{ACTOR}.kl_loss_coef"] == "0.001"


def test_a_cpu_run_is_batched_and_skips_the_second_pass():
    line = options(GrpoSettings(batch=4, mini_batch=2, n=3))
    assert line["actor_rollout_ref.rollout.name"] == "batched_cpu"
    assert line["actor_rollout_ref.rollout.max_num_seqs"] == "12"
    assert line["algorithm.rollout_correction.bypass_mode"] == "True"
    assert environment(GrpoSettings())["VERL_PLATFORM"] == "cpu"
    assert "VERL_PLATFORM" not in environment(GrpoSettings(recipe="paper"))


def test_paths_are_quoted_for_hydra():
    assert options(GrpoSettings())["data.train_files"] == r"'/a b/it\'s/critic_rl.parquet'"


def test_updates_must_divide_a_step():
    with pytest.raises(ValidationError, match="mini_batch 5 must divide batch 16"):
        GrpoSettings(mini_batch=5)


def test_a_pass_divides_a_devices_update():
    assert GrpoSettings().pass_size == 64
    assert GrpoSettings(batch=2, mini_batch=2, n=2).pass_size == 4
    assert GrpoSettings(recipe="paper").pass_size == 2
    assert GrpoSettings(recipe="paper", micro_batch=3).pass_size == 1
