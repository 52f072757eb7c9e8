"""What the stages of a profile take of GPUs, memory and disk."""

import pytest
import yaml

from assets.core import profile as profile_module
from assets.core.profile import FOLDER, load_profile
from inference.backends.diffusers.backend import DiffusersSettings
from inference.backends.diffusers.registry import load_registry
from training.gpu_assignment import server_problem
from training.grpo.verl_options import ROLLOUT
from training.model_size import KNOWN_SIZES
from training.stage_needs import disk_needed, drawing_seconds, needs_text, stage_needs

GB = 1e9
MODEL = "Qwen/Qwen3-VL-8B-Instruct"
PARAMETERS = KNOWN_SIZES[MODEL].parameters
CARD = 81_559 * 2**20  # as nvidia-smi has an H100 of 80 GB


@pytest.fixture(autouse=True)
def nothing_here(tmp_path, monkeypatch):
    """Nothing is downloaded or installed."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("INTERLEAVE_ENVIRONMENTS", str(tmp_path / "environments"))


@pytest.fixture
def gpu_profile(tmp_path):
    """Profile `paper` with a server of the base model, and changes of its trainings."""

    def make(**changes):
        content = yaml.safe_load((FOLDER / "paper.yaml").read_text())
        agents = {"kind": "agents", "model": "Qwen/Qwen3-VL-8B-Instruct", "gpus": 4}
        content["servers"]["agents"] = agents | {"tensor_parallel": 1}
        content["servers"] |= changes.pop("servers", {})
        content["training"] |= changes
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(yaml.safe_dump(content))
        return load_profile(str(path))

    return make


def by_stage(profile):
    return {need.stage: need for need in stage_needs(profile.servers, profile.training)}


def test_checkpoints_of_8b_are_most_of_the_disk(gpu_profile):
    profile = gpu_profile()
    needs = by_stage(profile)
    for stage, bytes_of_a_parameter in (("critic_sft", 14), ("critic_rl", 12)):
        assert needs[stage].working_disk == 3 * bytes_of_a_parameter * PARAMETERS
        assert needs[stage].disk == 2 * PARAMETERS, "the published model"
    fixed = sum(need.disk for need in needs.values())
    assert (
        disk_needed(profile.training, list(needs.values()))
        == fixed + needs["critic_sft"].working_disk
    )
    assert needs["weights to download"].disk == pytest.approx(52.3 * GB, rel=0.01)
    beside = gpu_profile(side_by_side=True)
    assert (
        disk_needed(beside.training, stage_needs(beside.servers, beside.training))
        == fixed + 2 * needs["critic_sft"].working_disk
    )


def test_adapters_take_a_fraction(gpu_profile):
    full = by_stage(gpu_profile())
    lora = by_stage(gpu_profile(critic_sft={"recipe": "lora"}))
    assert lora["critic_sft"].gpus == 1 and lora["critic_sft"].gpu < 40 * GB
    assert lora["critic_sft"].working_disk < full["critic_sft"].working_disk / 50
    assert full["critic_sft"].gpu < 80 * GB


@pytest.mark.parametrize("machine", [1, 2, 4, 8])
def test_the_layouts_of_profile_gpu_fit_their_machines_of_80_gb_a_gpu(machine, monkeypatch):
    monkeypatch.setattr(profile_module, "gpus", lambda: machine)
    load_profile.cache_clear()
    profile = load_profile("gpu")
    load_profile.cache_clear()
    shares = {f"server {name}": server.memory for name, server in profile.servers.items()}
    shares["critic_rl"] = profile.gpu_assignment.claim("rl", 1, machine).memory
    for stage, need in by_stage(profile).items():
        assert need.gpus <= machine and need.gpu <= shares.get(stage, 1) * CARD, stage
    rollouts = profile.training.critic_rl.options.get(f"{ROLLOUT}.gpu_memory_utilization", 0.6)
    assert rollouts <= shares["critic_rl"]
    assert profile.gpu_assignment.training_problem(machine) is None
    assert not any(server_problem(server, machine) for server in profile.servers.values())
    taken = {gpu for server in profile.servers.values() for gpu in server.gpus}
    assert taken == set(range(machine))


def test_fused_kernels_of_adapters_hold_no_logits(gpu_profile):
    """Else those of the longest sequences, in several copies, are most of what an update takes."""
    lora = {"recipe": "lora", "tokens_per_gpu": 20_000}
    logits = 12 * 151_936 * 20_000
    assert by_stage(gpu_profile(critic_rl=lora))["critic_rl"].gpu < CARD < 40 * GB + 2 * logits
    state = 4 * PARAMETERS + 16 * KNOWN_SIZES[MODEL].adapter_parameters(64)
    hand_over = by_stage(gpu_profile(critic_rl={"recipe": "lora"}))["critic_rl"].gpu
    assert state < hand_over < state + 2 * PARAMETERS + 3 * GB, "weights are there twice"


def test_a_pipeline_whose_parts_wait_holds_the_largest_one(gpu_profile):
    images = {"kind": "images", "model": "flux2-klein-9b", "gpus": [4, 5], "batch": 2}
    plain, offloaded = (
        by_stage(gpu_profile(servers={"images": images | changes}))["server images"]
        for changes in ({}, {"offload": True})
    )
    assert plain.gpu - offloaded.gpu == pytest.approx(2 * 8.3 * GB)
    assert plain.host == offloaded.host, "where all parts are loaded first"


def test_offloading_moves_the_state_into_main_memory(gpu_profile):
    grpo = {"recipe": "paper", "gpus": 4, "kl": 0}
    plain = by_stage(gpu_profile(critic_rl=grpo))["critic_rl"]
    offloaded = by_stage(gpu_profile(critic_rl=grpo | {"offload": True}))["critic_rl"]
    assert offloaded.host - 4 * 8 * GB == 16 * PARAMETERS > plain.host
    assert offloaded.gpu <= plain.gpu


def test_servers_take_weights_and_cache(gpu_profile):
    needs = by_stage(gpu_profile())
    assert 2 * PARAMETERS < needs["server agents"].gpu < 2 * PARAMETERS + 9 * GB
    assert needs["server images"].gpu > 34.8 * GB
    assert needs["server images"].host > 4 * 34.8 * GB, "every replica loads its weights there"
    assert needs_text(needs["server agents"]) == "25 GB of each of 4 GPUs, 32 GB of memory"


def test_what_is_not_downloaded_is_unknown_unless_its_size_is(gpu_profile):
    base = {"source": "huggingface", "model": "some/other-model", "revision": "main"}
    profile = gpu_profile(base_model=base)
    needs = by_stage(profile)
    assert needs["planner_sft"].gpu is None and needs["weights to download"].disk is None
    text = needs_text(needs["planner_sft"])
    assert text == "unknown: each of 8 GPUs, unknown: memory, unknown: disk"
    assert disk_needed(profile.training, list(needs.values())) > 0


def test_the_sketch_world_fits_anywhere():
    profile = load_profile("sketch")
    needs = stage_needs(profile.servers, profile.training)
    assert not any(need.gpus or need.gpu for need in needs)
    assert disk_needed(profile.training, needs) < 5 * GB
    assert max(need.host for need in needs) < 8 * GB


def test_every_pipeline_of_the_registry_has_a_time():
    for name, model in load_registry(None).models.items():
        if model.backend == "diffusers" and model.defaults.steps:
            assert 0.5 < drawing_seconds(DiffusersSettings(model=name), 1) < 200, name
    klein = [drawing_seconds(DiffusersSettings(model="flux2-klein-9b"), n) for n in (0, 1)]
    assert 0.9 < klein[0] < 1.2 and 1.7 < klein[1] < 2.2
    cached = drawing_seconds(DiffusersSettings(model="flux2-klein-9b-kv"), 1)
    assert 1.3 < klein[1] / cached < 1.6, "1.40 by its makers"
    assert drawing_seconds(DiffusersSettings(model="nobody/nothing"), 0) is None
