"""The printed lines are part of a valid profile."""

import yaml

from assets.core.profile import load_profile
from inference.backends.providers.agents import RemoteCritic, RemotePlanner
from inference.servers.vllm import Address, ServableAgent, profile_lines
from tests.inference.backends.checkpoint.tiny_agents import BOTH
from tests.inference.servers.toy_serving import agent_server


def lines_of(model, host="127.0.0.1", port=8000, **settings):
    return profile_lines(model, agent_server(**settings), Address(host, port))


def trained(role="critic"):
    limits = {"planner": 900, "critic": 300}
    manifest = BOTH.model_copy(update={"role": role, "max_new_tokens": limits})
    return ServableAgent("tiny@1", "/tiny", manifest=manifest)


def profile_of(tmp_path, lines, **remote):
    roles = dict.fromkeys(("planner", "generator", "critic", "scorer"), "sketch") | remote
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: sketch\nname: mine\n{yaml.safe_dump({'roles': roles})}{lines}")
    return load_profile(str(path))


def test_a_trained_critic_is_prompted_as_in_training(tmp_path, home):
    lines = lines_of(trained(), port=8123)
    profile = profile_of(tmp_path, lines, critic="openai")
    critic = profile.openai.critic
    assert (critic.model, critic.form, critic.temperature) == ("tiny@1", "tags", 0)
    assert (critic.max_tokens, critic.image_pixels) == (300, (1024, 9216))
    assert critic.prompt("critic") == "critic-brief@1"
    assert [endpoint.url for endpoint in critic.endpoints] == ["http://127.0.0.1:8123/v1"]
    assert profile.openai.planner is None
    assert isinstance(profile.build(home).critic, RemoteCritic)


def test_a_model_of_both_roles_has_lines_for_both(tmp_path, home):
    lines = lines_of(trained("both"))
    assert "*" not in lines and "&" not in lines
    profile = profile_of(tmp_path, lines, critic="openai", planner="openai")
    assert profile.openai.planner.max_tokens == 900
    assert set(profile.openai.planner.agent_prompts) == {"planner_text", "planner_interleaved"}
    assert isinstance(profile.build(home).planner, RemotePlanner)


def test_foreign_models_answer_by_schema(tmp_path):
    lines = lines_of(ServableAgent("Qwen/Q", "Qwen/Q"), gpus=1)
    profile = profile_of(tmp_path, lines, critic="openai", planner="openai")
    assert profile.openai.critic.form == profile.openai.planner.form == "schema"


def test_a_key_is_named_and_never_printed(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "hush-hush")
    lines = lines_of(trained())
    assert "key: VLLM_API_KEY" in lines and "hush-hush" not in lines


def test_the_address_is_one_that_clients_can_use():
    for host, url in (("0.0.0.0", "http://"), ("::1", "http://[::1]:8000")):
        lines = lines_of(trained(), host=host)
        assert url in lines and "0.0.0.0" not in lines
