"""The flags of `vllm serve`, and that vLLM itself accepts them."""

import json
import os
from pathlib import Path

import pytest

from inference.servers.vllm import (
    _SAMPLER,
    Address,
    ServableAgent,
    missing_compilers,
    vllm_command,
    vllm_variables,
)
from tests.inference.backends.checkpoint.tiny_agents import BOTH
from tests.inference.servers.toy_serving import agent_server
from tests.training.trainer_parsers import parse_all

PARSER, PYTHON = Path(__file__).with_name("parse_flags.py"), Path("/e/bin/python")
CRITIC = BOTH.model_copy(update={"role": "critic"})
TRAINED = ServableAgent("critic_rl_checkpoint@a", "/c/a", manifest=CRITIC, context_length=4096)
FOREIGN = ServableAgent("Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3-VL-8B-Instruct", "main")
ON_CPU, ON_GPUS = agent_server(), agent_server(gpus=2)
ADDRESS = Address("0.0.0.0", 8001)


def flags_of(model, settings):
    """Flag -> its value; True for one without."""
    words = vllm_command(Path("python"), model, settings, ADDRESS)
    assert words[:5] == ["python", "-m", "vllm.entrypoints.cli.main", "serve", model.source]
    flags, rest = {}, words[5:]
    for word, following in zip(rest, [*rest[1:], "--"], strict=True):
        if word.startswith("--"):
            flags[word.removeprefix("--")] = True if following.startswith("--") else following
    return flags


def test_gpus_hold_as_many_copies_as_fit_in_half_precision():
    flags = flags_of(TRAINED, ON_GPUS)
    assert (flags["tensor-parallel-size"], flags["dtype"]) == ("2", "bfloat16")
    assert (flags["host"], flags["port"]) == ("0.0.0.0", "8001")
    assert not {"enforce-eager", "kv-cache-memory-bytes"} & set(flags)
    flags = flags_of(TRAINED, agent_server(gpus=4, tensor_parallel=2, memory=0.5))
    assert (flags["tensor-parallel-size"], flags["data-parallel-size"]) == ("2", "2")
    assert flags["gpu-memory-utilization"] == "0.45"


def test_a_cpu_compiles_nothing_and_bounds_memory():
    flags = flags_of(TRAINED, ON_CPU)
    assert flags["enforce-eager"] is True and flags["dtype"] == "float32"
    assert int(flags["kv-cache-memory-bytes"]) == 1024**3
    assert "tensor-parallel-size" not in flags


def test_a_trained_agent_is_prompted_as_in_training():
    for settings in (ON_CPU, ON_GPUS):
        flags = flags_of(TRAINED, settings)
        assert flags["served-model-name"] == TRAINED.name
        assert Path(flags["chat-template"]).is_file()
        assert flags["generation-config"] == "vllm"
        limits = json.loads(flags["limit-mm-per-prompt"])
        assert limits == {"image": {"count": 2, "width": 96, "height": 96}, "video": 0}
    manifest = CRITIC.model_copy(update={"role": "planner"})  # which may get more images
    flags = flags_of(ServableAgent("p", "/p", manifest=manifest), ON_CPU)
    assert json.loads(flags["limit-mm-per-prompt"])["image"]["count"] == 64


def test_foreign_models_keep_their_own_defaults():
    flags = flags_of(FOREIGN, ON_GPUS)
    assert not {"chat-template", "generation-config"} & set(flags)
    assert flags["revision"] == "main"
    assert json.loads(flags["structured-outputs-config"])["disable_any_whitespace"] is True


def test_the_context_is_limited_and_extra_flags_come_last(tmp_path):
    for context_length, max_length, length in (
        (4096, None, "4096"),
        (262_144, None, "32768"),
        (None, None, "32768"),
        (4096, 1000, "1000"),
    ):
        model = ServableAgent("m", "/m", context_length=context_length)
        assert flags_of(model, agent_server(max_length=max_length))["max-model-len"] == length
    settings = agent_server(flags=["--seed", "7"])
    assert vllm_command(PYTHON, FOREIGN, settings, ADDRESS)[-2:] == ["--seed", "7"]
    # A local model is not looked up online.
    assert vllm_variables(PYTHON, ServableAgent("m", str(tmp_path)))["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in vllm_variables(PYTHON, TRAINED)  # /c/a does not exist


def test_programs_of_vllms_environment_are_found_and_kernels_are_compiled_where_they_can_be(
    tmp_path, monkeypatch
):
    """FlashInfer's sampler is vLLM's default, and ends the server where it cannot be compiled."""
    python, toolkit, sampler = tmp_path / "bin" / "python", tmp_path / "cuda", _SAMPLER
    monkeypatch.setenv("PATH", "/nothing")
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    monkeypatch.delenv(sampler, raising=False)
    assert missing_compilers(python) == ["ninja", "nvcc"]
    assert vllm_variables(python, FOREIGN)["PATH"] == f"{tmp_path}/bin:/nothing"
    assert vllm_variables(python, FOREIGN)[sampler] == "0"
    for program in (tmp_path / "bin" / "ninja", toolkit / "bin" / "nvcc"):
        assert vllm_variables(python, FOREIGN)[sampler] == "0"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh")
        program.chmod(0o755)
    assert missing_compilers(python) == [] and sampler not in vllm_variables(python, FOREIGN)
    monkeypatch.setenv("CUDA_HOME", "/nothing")
    monkeypatch.setenv(sampler, "1")  # the user knows better
    assert sampler not in vllm_variables(python, FOREIGN)


PARSER_CASES = {
    "trained on CPU": (TRAINED, ON_CPU),
    "trained on GPUs": (TRAINED, ON_GPUS),
    "foreign on CPU": (FOREIGN, ON_CPU),
    "foreign on GPUs": (FOREIGN, ON_GPUS),
    "copies on GPUs": (FOREIGN, agent_server(gpus=4, tensor_parallel=2, memory=0.5)),
}


@pytest.fixture(scope="module")
def parsed(vllm_python):
    """By case, as vLLM's own parser understands the flags."""
    arguments = {
        name: vllm_command(PYTHON, *case, ADDRESS)[4:] for name, case in PARSER_CASES.items()
    }
    arguments["misspelt"] = ["m", "--dtipe", "float32"]
    return parse_all(vllm_python, PARSER, arguments, os.environ)


@pytest.mark.slow
@pytest.mark.long
def test_vllm_accepts_every_flag_of_ours_and_no_other(parsed):
    for name, (model, settings) in PARSER_CASES.items():
        understood, count = parsed[name], len(settings.gpus)
        assert understood["model_tag"] == model.source
        assert understood["served_model_name"] == [model.name]
        assert understood["port"] == ADDRESS.port
        tensor_parallel = settings.tensor_parallel or max(1, count)
        assert understood["tensor_parallel_size"] == tensor_parallel
        assert understood["data_parallel_size"] == max(1, count // tensor_parallel)
        assert understood["structured_outputs_config"]["disable_any_whitespace"] is True
        assert understood["enforce_eager"] is (count == 0)
    assert "--dtipe" in parsed["misspelt"]["error"]
