"""Settings of GRPO and the command line that they become."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from training.grpo.recipe import RunPaths, command, environment, overrides
from training.grpo.settings import GrpoSettings

PLACES = RunPaths(*(Path(f"/a b/it's/{name}") for name in ("m", "d", "c", "h", "r")))
ACTOR = "actor_rollout_ref.actor"


def given(settings: GrpoSettings) -> dict[str, str]:
    return dict(line.split("=", 1) for line in overrides(settings, PLACES, steps=7))


def test_the_paper_profile_has_the_references_numbers():
    line = given(GrpoSettings(recipe="paper"))
    wanted = {
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
    assert {key: line[key] for key in wanted} == wanted


def test_what_is_given_goes_before_the_recipe():
    settings = GrpoSettings(recipe="paper", learning_rate=1e-6, gpus=2)
    assert (settings.learning_rate, settings.gpus, settings.response_length) == (1e-6, 2, 4096)
    assert GrpoSettings.model_validate(settings.model_dump()) == settings


def test_the_papers_divergence_is_one_switch():
    line = given(GrpoSettings(kl=1e-3))
    assert line[f"{ACTOR}.use_kl_loss"] == "True"
    assert line[f"{ACTOR}.kl_loss_coef"] == "0.001"


def test_a_cpu_run_is_batched_and_skips_the_second_pass():
    line = given(GrpoSettings(batch=4, mini_batch=2, n=3))
    assert line["actor_rollout_ref.rollout.name"] == "batched_cpu"
    assert line["actor_rollout_ref.rollout.max_num_seqs"] == "12"
    assert line["algorithm.rollout_correction.bypass_mode"] == "True"
    assert environment(GrpoSettings())["VERL_PLATFORM"] == "cpu"
    assert "VERL_PLATFORM" not in environment(GrpoSettings(recipe="paper"))


def test_paths_survive_hydras_grammar():
    assert given(GrpoSettings())["data.train_files"] == r"'/a b/it\'s/d'"
    assert command(Path("/p"), GrpoSettings(), PLACES, 7)[:3] == [
        "/p",
        "-m",
        "verl.trainer.main_ppo",
    ]


def test_updates_share_a_step_evenly():
    with pytest.raises(ValidationError, match="mini_batch 5 must divide batch 16"):
        GrpoSettings(mini_batch=5)


def test_a_pass_divides_what_a_device_updates():
    assert GrpoSettings().pass_size == 64
    assert GrpoSettings(batch=2, mini_batch=2, n=2).pass_size == 4
    assert GrpoSettings(recipe="paper").pass_size == 2
    assert GrpoSettings(recipe="paper", micro_batch=3).pass_size == 1
