"""The flags of `vllm serve`, and that vLLM itself takes them."""

import json
import subprocess
from pathlib import Path

import pytest

from inference.backends.checkpoint.manifest import Manifest
from training.serving.command import ServerSettings, vllm_command, vllm_variables
from training.serving.models import ServableAgent

PARSER = Path(__file__).with_name("parse_flags.py")
CRITIC = Manifest(
    name="critic_rl_checkpoint",
    version="a",
    role="critic",
    agent_prompts={"critic": "critic-brief@1"},
    image_max_pixels=96 * 96,
    max_new_tokens={"critic": 300},
)
TRAINED = ServableAgent("critic_rl_checkpoint@a", "/c/a", manifest=CRITIC, context_length=4096)
FOREIGN = ServableAgent("Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3-VL-8B-Instruct", "main")
ON_CPU, ON_GPUS = ServerSettings(), ServerSettings(gpus=2, host="0.0.0.0", port=8001)


def flags_of(model, settings):
    """Flag -> its value; True for one without."""
    words = vllm_command(Path("python"), model, settings)
    assert words[:5] == ["python", "-m", "vllm.entrypoints.cli.main", "serve", model.source]
    found, rest = {}, words[5:]
    for word, following in zip(rest, [*rest[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word.removeprefix("--")] = True if following.startswith("--") else following
    return found


def test_on_gpus_it_is_shared_and_in_half_precision():
    flags = flags_of(TRAINED, ON_GPUS)
    assert (flags["tensor-parallel-size"], flags["dtype"]) == ("2", "bfloat16")
    assert (flags["host"], flags["port"]) == ("0.0.0.0", "8001")
    assert not {"enforce-eager", "kv-cache-memory-bytes"} & set(flags)


def test_on_cpu_nothing_is_compiled_and_memory_is_bounded():
    flags = flags_of(TRAINED, ON_CPU)
    assert flags["enforce-eager"] is True and flags["dtype"] == "float32"
    assert int(flags["kv-cache-memory-bytes"]) == 1024**3
    assert "tensor-parallel-size" not in flags


@pytest.mark.parametrize("settings", [ON_CPU, ON_GPUS])
def test_a_trained_agent_is_asked_as_in_training(settings):
    flags = flags_of(TRAINED, settings)
    assert flags["served-model-name"] == TRAINED.name
    assert Path(flags["chat-template"]).is_file()
    assert flags["generation-config"] == "vllm"
    pictures = json.loads(flags["limit-mm-per-prompt"])
    assert pictures == {"image": {"count": 2, "width": 96, "height": 96}, "video": 0}


def test_a_planner_may_be_shown_more_pictures():
    manifest = CRITIC.model_copy(update={"role": "planner"})
    flags = flags_of(ServableAgent("p", "/p", manifest=manifest), ON_CPU)
    assert json.loads(flags["limit-mm-per-prompt"])["image"]["count"] == 16


def test_models_of_others_keep_their_own_manner():
    flags = flags_of(FOREIGN, ON_GPUS)
    assert not {"chat-template", "generation-config"} & set(flags)
    assert flags["revision"] == "main"
    assert vllm_variables(TRAINED).get("HF_HUB_OFFLINE") is None  # /c/a is no folder here


@pytest.mark.parametrize(
    ("context_length", "asked", "length"),
    [(4096, None, "4096"), (262_144, None, "32768"), (None, None, "32768"), (4096, 1000, "1000")],
)
def test_a_question_is_as_long_as_it_may_be(context_length, asked, length):
    model = ServableAgent("m", "/m", context_length=context_length)
    assert flags_of(model, ServerSettings(max_length=asked))["max-model-len"] == length


def test_answers_by_schema_have_no_blanks_between_their_parts():
    structured = json.loads(flags_of(FOREIGN, ON_CPU)["structured-outputs-config"])
    assert structured["disable_any_whitespace"] is True


def test_more_flags_come_last():
    words = vllm_command(Path("python"), FOREIGN, ServerSettings(flags=("--seed", "7")))
    assert words[-2:] == ["--seed", "7"]


def test_what_is_here_is_not_looked_for_elsewhere(tmp_path):
    assert vllm_variables(ServableAgent("m", str(tmp_path)))["HF_HUB_OFFLINE"] == "1"


@pytest.mark.slow
@pytest.mark.parametrize("model", [TRAINED, FOREIGN])
@pytest.mark.parametrize("settings", [ON_CPU, ON_GPUS])
def test_vllm_takes_every_flag(vllm_python, model, settings):
    words = vllm_command(Path("python"), model, settings)[4:]
    understood = parsed(vllm_python, words)
    assert understood["model_tag"] == model.source
    assert understood["served_model_name"] == [model.name]
    assert understood["port"] == settings.port
    assert understood["tensor_parallel_size"] == max(1, settings.gpus)
    assert understood["structured_outputs_config"]["disable_any_whitespace"] is True
    assert understood["enforce_eager"] is (settings.gpus == 0)


@pytest.mark.slow
def test_vllm_rejects_what_it_does_not_know(vllm_python):
    """So that the test above can fail."""
    with pytest.raises(subprocess.CalledProcessError) as error:
        parsed(vllm_python, ["m", "--dtipe", "float32"])
    assert "--dtipe" in error.value.stderr


def parsed(python, words):
    command = [str(python), str(PARSER), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
