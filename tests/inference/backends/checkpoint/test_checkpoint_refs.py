"""References to checkpoints, and errors for missing ones."""

import json
import re
import shutil
from pathlib import Path

import pytest

from inference.agent_prompts.templates import critic_prompt
from inference.backends.checkpoint.backend import (
    CheckpointBackend,
    CheckpointCritic,
    CheckpointModel,
    _load,
)
from inference.backends.checkpoint.decoding import Sampling
from inference.backends.checkpoint.manifest import (
    MANIFEST_FILE,
    CheckpointError,
    read_manifest,
    resolve,
)
from inference.backends.factory import Backends, RoleBindings
from inference.roles import qualified_name
from inference.servers import supervisor, vllm
from inference.servers.instance import ServerInstance
from tests.inference.backends.checkpoint.tiny_agents import ACCEPTED, PROMPTS, register
from warehouse import EncodedImage, Home

REVISION = "0123abcd" * 5
TRAINED = RoleBindings(
    planner="checkpoint", generator="sketch", critic="checkpoint", scorer="sketch"
)


def roles_of(home, **settings):
    return Backends(roles=TRAINED, checkpoint=settings).build(home)


def test_promoted_is_the_furthest_trained_promoted_checkpoint(home):
    sft = register(home, "critic_sft_checkpoint")
    register(home, "critic_rl_checkpoint", status="candidate")
    assert resolve("promoted", "critic", home) == sft
    rl = register(home, "critic_rl_checkpoint", version="2")
    assert resolve("promoted", "critic", home) == rl


def test_a_moved_home_has_its_checkpoints(home, tmp_path):
    register(home, "critic_rl_checkpoint")
    moved = Home(home.local.rename(tmp_path / "moved"))
    folder = tmp_path / "moved" / "checkpoints" / "critic_rl_checkpoint" / "1"
    assert resolve("critic_rl_checkpoint@1", "critic", moved) == folder
    assert resolve("promoted", "critic", moved) == folder


def test_a_version_or_a_folder_can_be_named(home, tmp_path):
    with pytest.raises(CheckpointError, match=r"no critic was promoted yet .*`interleave run`"):
        resolve("promoted", "critic", home)
    folder = register(home, "critic_rl_checkpoint", version="7", status="rejected")
    assert resolve("critic_rl_checkpoint@7", "critic", home) == folder
    assert resolve(f"{tmp_path}/a@b", "critic", home) == tmp_path / "a@b"
    with pytest.raises(CheckpointError, match=r"there are: critic_rl_checkpoint@7"):
        resolve("critic_rl_checkpoint@4", "critic", home)


def test_model_names_change_with_the_version(home):
    register(home, "planner_sft_checkpoint")
    register(home, "critic_rl_checkpoint", version="a")
    assert qualified_name(roles_of(home).critic) == "checkpoint/critic_rl_checkpoint@a"
    register(home, "critic_rl_checkpoint", version="b", status="candidate")
    other = roles_of(home, critic="critic_rl_checkpoint@b")
    assert qualified_name(other.critic) == "checkpoint/critic_rl_checkpoint@b"
    assert qualified_name(other.generator).startswith("sketch/")


def test_two_roles_of_one_checkpoint_share_its_weights(home):
    both = register(home, "planner_sft_checkpoint")
    roles = roles_of(home, planner=str(both), critic=str(both))
    assert roles.planner._checkpoint is roles.critic._checkpoint
    register(home, "critic_rl_checkpoint", role="critic")
    with pytest.raises(CheckpointError, match="is a critic, not a planner"):
        roles_of(home, planner="critic_rl_checkpoint@1", critic="critic_rl_checkpoint@1")
    with pytest.raises(CheckpointError, match=r"`checkpoint.planner` is null"):
        roles_of(home, planner=None)


@pytest.fixture
def hub_cache(tmp_path, monkeypatch, overfitted):
    """Hugging Face's cache with a model `owner/agent` that was not trained here."""
    model = tmp_path / "cache" / "models--owner--agent"
    shutil.copytree(
        overfitted, model / "snapshots" / REVISION, ignore=shutil.ignore_patterns(MANIFEST_FILE)
    )
    config = model / "snapshots" / REVISION / "config.json"  # answers may have 4096 tokens
    config.write_text(re.sub(r'("max_position_embeddings": )\d+', r"\g<1>8192", config.read_text()))
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(REVISION)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return model / "snapshots" / REVISION


def test_a_model_at_hugging_face_is_an_agent_with_prompts_of_its_own(home, hub_cache, tmp_path):
    prompt = tmp_path / "critic.jinja"
    prompt.write_text("<image><image>{{ original_instruction }}")
    names = {**PROMPTS, "critic": str(prompt)}

    def critic(reference):
        settings = {"planner": reference, "critic": reference, "agent_prompts": names}
        return roles_of(home, **settings).critic

    assert resolve("owner/agent", "critic", home) == hub_cache
    first, pinned = critic("owner/agent"), critic(f"owner/agent@{REVISION}")
    assert first.model == pinned.model and first.model.startswith("owner/agent@0123abcd-")
    names["critic"] = str(tmp_path / "other.jinja")
    Path(names["critic"]).write_text("<image><image>Otherwise: {{ original_instruction }}")
    assert critic("owner/agent").model != first.model, "journals do not mix their answers"


async def test_a_model_that_was_not_trained_here_answers_and_gets_the_first_prompt_twice(
    hub_cache, overfitted, monkeypatch
):
    async def judged(folder):
        model = CheckpointModel(folder, CheckpointBackend(agent_prompts=PROMPTS, device="cpu"))
        complete, queries = model.complete, []

        async def recorded(query):
            queries.append(query)
            return await complete(query)

        monkeypatch.setattr(model, "complete", recorded)
        white = EncodedImage.white((96, 96))
        assert await CheckpointCritic(model).judge(white, white, "Draw a cat.", "") == ACCEPTED
        return model.manifest, queries[0].text

    name = PROMPTS["critic"]
    manifest, question = await judged(hub_cache)
    assert manifest.many_images_max_pixels == 384 * 384
    assert question == critic_prompt("Draw a cat.", "Draw a cat.", name).text
    assert (await judged(overfitted))[1] == critic_prompt("Draw a cat.", "", name).text


def test_a_model_that_was_not_trained_here_decodes_as_its_makers_say(hub_cache):
    def sampling(**config):
        (hub_cache / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, **config}))
        settings = CheckpointBackend(agent_prompts=PROMPTS, device="cpu", batch=len(config) + 1)
        model = CheckpointModel(hub_cache, settings)
        _load.cache_clear()
        return model.loaded.sampling(model.manifest.decoding)

    assert sampling() is None
    released = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20}
    assert sampling(**released) == Sampling(0.7, 0.8, 20)


@pytest.mark.parametrize("is_foreign", [True, False])
def test_a_server_knows_a_trained_agent_by_the_name_that_calls_have(
    home, hub_cache, monkeypatch, is_foreign
):
    monkeypatch.setattr(vllm, "ensure_environment", lambda *_: Path("python"))
    folder = register(home, "critic_rl_checkpoint")
    shutil.copy(hub_cache / "config.json", folder)
    settings = {"agent_prompts": PROMPTS}
    servers = {"critic": {"kind": "agents", "trained": "critic", "gpus": []}}
    backends = Backends(roles=TRAINED, checkpoint=settings, servers=servers)
    specs = []
    monkeypatch.setattr(ServerInstance, "of", lambda spec, home: specs.append(spec))
    agent = backends.agent("critic", "owner/agent" if is_foreign else "promoted", home)
    command = supervisor.server_command(specs[0], "127.0.0.1", {}).command
    name = command[command.index("--served-model-name") + 1]
    assert re.fullmatch(re.escape(name) + "-[0-9a-f]{8}", agent.model)
    assert name.startswith("owner/agent@0123abcd-") == is_foreign
    assert ("--chat-template" in command) != is_foreign
    manifest = read_manifest(Path(specs[0].model), PROMPTS)
    usual, sampled, constrained = (
        manifest.prompting("critic", answers) for answers in ("usual", "sampled", "constrained")
    )
    assert usual["repeats_first_prompt"] == is_foreign
    assert (usual["form"], usual["temperature"]) == ("tags", None if is_foreign else 0)
    assert (sampled["form"], sampled["temperature"]) == ("tags", None)
    assert constrained["form"] == "schema", "JSON whose schema the server enforces"


def test_a_model_that_is_nowhere_is_one_line(home, hub_cache):
    with pytest.raises(CheckpointError, match="owner/none is neither a folder nor in the cache"):
        resolve("owner/none", "critic", home)
    with pytest.raises(CheckpointError, match=r"its prompts in `checkpoint.agent_prompts`"):
        roles_of(home, planner="owner/agent", critic="owner/agent")


def test_an_invalid_checkpoint_is_one_line(home, tmp_path):
    with pytest.raises(CheckpointError, match="no such checkpoint folder"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"no interleave.json in it"):
        read_manifest(tmp_path)
    (tmp_path / "interleave.json").write_text('{"name": "x"}')
    with pytest.raises(CheckpointError, match="version: Field required"):
        read_manifest(tmp_path)
    folder = register(home, "critic_rl_checkpoint")
    with pytest.raises(CheckpointError, match="cannot be loaded") as caught:
        _ = CheckpointModel(folder).loaded
    assert "\n" not in str(caught.value)
