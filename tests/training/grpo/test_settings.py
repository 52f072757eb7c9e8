"""Settings of GRPO and the command line that they become."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from assets.core.profile import FOLDER, load_profile
from inference.backends.factory import Backends
from schemas import FoundryError
from training.grpo import verl_options
from training.grpo.driver import GrpoJob, grpo_job
from training.grpo.recipe import (
    CriticGrpoSettings,
    PlannerGrpoSettings,
    cluster_overrides,
    environment,
    overrides,
)
from training.grpo.verl_options import ACTOR, MODEL, ROLLOUT
from training.settings import TrainingSettings

PATHS = (Path("/models/m"), Path("/a b/it's"))
PAGE = Path(__file__).parents[3] / "docs" / "training.md"


def options(**settings: object) -> dict[str, str]:
    lines = overrides(CriticGrpoSettings(**settings), *PATHS, steps=7)
    return dict(line.lstrip("+").split("=", 1) for line in lines)


def paper(**changes: object) -> CriticGrpoSettings:
    return CriticGrpoSettings(recipe="paper", **changes)


def test_numbers_of_a_recipe_become_options():
    """Those of all recipes are in the snapshot of `test_numbers.py`."""
    line = options(recipe="paper")
    expected = {
        f"{ROLLOUT}.n": "8",
        "data.train_batch_size": "16",
        f"{ACTOR}.ppo_mini_batch_size": "8",
        f"{ACTOR}.optim.lr": "2e-06",
        f"{ACTOR}.optim.weight_decay": "0.01",
        f"{ACTOR}.clip_ratio_low": "0.2",
        f"{ACTOR}.clip_ratio_high": "0.3",
        f"{ACTOR}.clip_ratio_c": "3.0",
        f"{ACTOR}.loss_agg_mode": "'token-mean'",
        f"{ROLLOUT}.temperature": "1.0",
        "data.max_prompt_length": "16384",
        "data.max_response_length": "4096",
        "trainer.device": "'cuda'",
        "trainer.n_gpus_per_node": "8",
        f"{ROLLOUT}.tensor_model_parallel_size": "4",
    }
    assert {key: line[key] for key in expected} == expected


def test_a_reward_that_is_set_in_part_is_the_recipes_otherwise():
    reward = CriticGrpoSettings(recipe="reference", reward={"alpha": 0.5}).reward
    assert (reward.alpha, reward.form, reward.concurrency) == (0.5, "code", 128)


def test_set_fields_override_the_recipe():
    settings = paper(learning_rate=1e-6, gpus=2)
    assert (settings.learning_rate, settings.gpus, settings.response_length) == (1e-6, 2, 4096)
    assert CriticGrpoSettings.model_validate(settings.model_dump()) == settings
    line = options(kl=1e-3)
    assert line[f"{ACTOR}.use_kl_loss"] == "true" and line[f"{ACTOR}.kl_loss_coef"] == "0.001"
    assert options(recipe="reference")[f"{ACTOR}.use_kl_loss"] == "false"


def test_a_cpu_run_is_batched_and_skips_the_second_pass():
    line = options(batch=4, mini_batch=2, n=3)
    assert line[f"{ROLLOUT}.name"] == "'batched_cpu'"
    assert line[f"{ROLLOUT}.max_num_seqs"] == "12"
    assert line["algorithm.rollout_correction.bypass_mode"] == "true"
    assert environment(CriticGrpoSettings())["VERL_PLATFORM"] == "cpu"
    assert "VERL_PLATFORM" not in environment(paper())
    assert line["data.train_files"] == r"'/a b/it\'s/rows.parquet'"


def test_a_pass_divides_a_devices_update():
    assert CriticGrpoSettings().pass_size == 64
    assert CriticGrpoSettings(batch=2, mini_batch=2, n=2).pass_size == 4
    assert paper().pass_size == 1
    assert paper(micro_batch=6).pass_size == 2
    assert paper(nodes=2, mini_batch=4, n=4, micro_batch=8).pass_size == 1


def test_attention_needs_no_package_unless_it_is_there_or_asked_for():
    names = (f"{MODEL}.override_config.attn_implementation", f"{MODEL}.use_remove_padding")
    asking = {"attention": "flash_attention_2"}
    for changes, expected in (({}, ("'sdpa'", "false")), (asking, ("'flash_attention_2'", "true"))):
        line = options(recipe="paper", **changes)
        assert tuple(line[name] for name in names) == expected
    assert paper().environment_extra is None is paper(attention="sdpa").environment_extra
    assert paper(**asking).environment_extra == "flash"
    assert CriticGrpoSettings(**asking).environment_extra is None, "no use for the CPU engine"
    assert f"{MODEL}.use_remove_padding=true" in overrides(paper(), *PATHS, 7, **asking)


def test_options_are_passed_on_and_replace_fixed_ones():
    chosen = {
        f"{ROLLOUT}.gpu_memory_utilization": 0.7,
        f"{ROLLOUT}.limit_images": 3,
        "+data.mine": ["a", None],
    }
    lines = overrides(paper(options=chosen), *PATHS, 7)
    assert f"{ROLLOUT}.gpu_memory_utilization=0.7" in lines
    assert f"+{ROLLOUT}.limit_images=3" in lines and "+data.mine=['a',null]" in lines
    assert len({line.lstrip("+").partition("=")[0] for line in lines}) == len(lines)


def test_options_that_collide_with_ours_are_rejected():
    cases = [
        ("data.train_batch_size", "set that instead"),
        (f"++{ROLLOUT}.n", "`n`: set that instead"),
        (f"{ACTOR}.optim", "`learning_rate`"),
        ("trainer.default_local_dir", "the driver sets this"),
        ("reward.reward_manager.name", "the driver sets this"),
        ("hydra.run.dir", "the driver sets this"),
        ("trainer.test_freq", "`dev_share`: set that instead"),
        ("data.x=1 trainer.y", "no name of an option"),
        ("~data.seed", "no name of an option"),
    ]
    for key, reason in cases:
        with pytest.raises(ValidationError, match=reason):
            CriticGrpoSettings(options={key: 1})


def test_a_colliding_option_names_file_line_and_key(tmp_path):
    profile = (FOLDER / "sketch.yaml").read_text()
    path = tmp_path / "mine.yaml"
    wrong = re.sub(r"critic_rl: \{.*\}", "critic_rl: {options: {trainer.save_freq: 3}}", profile)
    path.write_text(wrong)
    problem = r"mine.yaml:\d+: training.critic_rl.options: .*save_every"
    with pytest.raises(FoundryError, match=problem):
        load_profile(str(path))


def test_every_setting_that_becomes_an_option_exists():
    named = {*verl_options.SETTING_OF.values(), *verl_options.DERIVED_FROM.values()}
    assert named <= set(CriticGrpoSettings.model_fields)


def test_one_gpu_trains_adapters_and_offloads():
    line = options(recipe="lora")
    assert (line[f"{MODEL}.lora_rank"], line[f"{MODEL}.lora_alpha"]) == ("64", "128")
    assert line[f"{MODEL}.lora.merge"] == line[f"{MODEL}.use_fused_kernels"] == "true"
    assert line[f"{ACTOR}.optim.lr"] == "2e-05"
    assert line[f"{ACTOR}.fsdp_config.optimizer_offload"] == "true"
    assert line[f"{ROLLOUT}.tensor_model_parallel_size"] == "1"
    # On several GPUs verl 0.9.1 does not add up the gradients that these give a trained head.
    assert f"{MODEL}.use_fused_kernels" not in options(recipe="paper")


def test_vllm_has_room_for_the_longest_sequence_and_ray_for_all_workers():
    length, cpus = f"{ROLLOUT}.max_model_len", "ray_kwargs.ray_init.num_cpus"
    storage = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
    plain, lora = (options(recipe=name) for name in ("paper", "lora"))
    assert (plain[length], plain[cpus], plain[storage]) == ("20480", "48", "2")
    assert (lora[length], lora[cpus]) == ("8192", "20")
    nodes = options(recipe="paper", nodes=2)
    assert cpus not in nodes and nodes[storage] == "4"
    dynamic = options(recipe="paper", tokens_per_gpu=24000)
    assert dynamic[f"{ACTOR}.use_dynamic_bsz"] == "true"
    assert dynamic[f"{ACTOR}.ppo_max_token_len_per_gpu"] == "24000"


def test_contradictions_name_the_fix():
    cases = [
        ({"mini_batch": 5}, "mini_batch 5 must divide batch 16"),
        ({"recipe": "paper", "gpus": 6, "mini_batch": 4, "n": 9, "batch": 8}, "1, 2, 3 or 6"),
        ({"recipe": "paper", "nodes": 3}, "the 64 rollouts of an update .* 24 GPUs: change"),
        ({"recipe": "paper", "tokens_per_gpu": 9000}, "set it to 20480"),
        ({"nodes": 2}, "nodes is for GPUs: set gpus"),
        ({"offload": True}, "offload is for GPUs"),
        ({"patience": 2}, "patience counts evaluations: set dev_share"),
        ({"dev_share": 0.1, "options": {"++trainer.max_actor_ckpt_to_keep": 1}}, "the newest are"),
    ]
    for changes, reason in cases:
        with pytest.raises(ValidationError, match=reason):
            CriticGrpoSettings(**changes)


def test_episodes_are_played_by_their_own_agent_loop_and_once():
    agent, job = f"{ROLLOUT}.agent", (Path("parent"), Path("job"), 1)
    lines = overrides(CriticGrpoSettings(reward={"of": "episode"}), *job)
    of_both = overrides(PlannerGrpoSettings(reward={"of": "episode"}), *job)
    limit = "+reward.custom_reward_function.reward_kwargs.image_max_pixels=9216"
    assert {limit, f"{agent}.default_agent_loop='episode'"} <= set(lines) & set(of_both)
    [path] = [line for line in lines if line.startswith(f"{agent}.agent_loop_config_path=")]
    [loop] = yaml.safe_load(Path(path.partition("=")[2].strip("'")).read_text())
    assert loop["name"] == "episode"
    assert not any("default_agent_loop" in line for line in overrides(CriticGrpoSettings(), *job))
    with pytest.raises(ValidationError, match="draws 2: an episode is played once"):
        CriticGrpoSettings(reward={"of": "episode", "draws": 2})
    with pytest.raises(ValidationError, match="without step: an episode is played for its step"):
        CriticGrpoSettings(reward={"of": "episode", "without": ["step"]})


def test_a_job_is_read_as_that_of_its_role():
    profile = load_profile("sketch")
    roles = Backends(**{name: getattr(profile, name) for name in Backends.model_fields})
    for settings in (CriticGrpoSettings, PlannerGrpoSettings):
        job = GrpoJob(
            **{"parent": Path("/parent"), "data": Path("/data"), "root": "home", "version": "v1"},
            settings=settings(reward={"of": "episode"}),
            roles=roles,
        )
        read = GrpoJob.model_validate(grpo_job("name", Path("/job"), job).payload)
        assert type(read.settings) is settings and read == job


def test_a_clusters_workers_get_their_python_and_environment():
    settings = paper(nodes=2)
    assert settings.on_cluster and not paper().on_cluster
    lines = cluster_overrides(Path("/e n/bin/python"), environment(settings))
    ray = "++ray_kwargs.ray_init.runtime_env"
    assert lines[0] == rf"{ray}.py_executable='\'/e n/bin/python\''"
    assert f"{ray}.env_vars.VERL_USE_EXTERNAL_MODULES='verl_masking,verl_patches'" in lines


def test_examples_of_the_page_are_valid():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    read = [TrainingSettings.model_validate(yaml.safe_load(block)["training"]) for block in blocks]
    assert [settings.critic_rl.recipe for settings in read] == [
        *("paper", "paper", "lora", "sketch", "sketch", "sketch", "lora")
    ]
