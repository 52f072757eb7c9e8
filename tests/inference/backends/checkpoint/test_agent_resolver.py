"""Agents of a request: promoted checkpoints, the profile's own agents, or a chosen critic."""

import asyncio
import gc
import weakref
from functools import partial

import pytest

from inference.backends.factory import Backends, RoleBindings
from inference.generation import agent_resolver
from inference.generation.agent_resolver import AgentResolver
from inference.generation.requests import RequestedAgents
from schemas import FoundryError
from tests.inference.backends.checkpoint.tiny_agents import register

TEACHERS = RoleBindings(planner="sketch", generator="sketch", critic="sketch", scorer="sketch")


@pytest.fixture
def publish(home, untrained):
    """Registers a version with (random) weights."""
    return partial(register, home, weights=untrained)


@pytest.fixture
def both(publish):
    publish("planner_sft_checkpoint", "1")
    publish("critic_rl_checkpoint", "1")


def make_resolver(home, agents="auto", **named):
    backends = Backends(roles=TEACHERS, checkpoint={"device": "cpu"})
    return AgentResolver(backends, home, agents, named)


async def test_the_profiles_own_agents_are_used_until_planner_and_critic_are_promoted(
    home, publish
):
    for promoted in ((), ("planner_sft_checkpoint",)):
        for name in promoted:
            publish(name, "1")
        async with make_resolver(home) as resolver:
            names = (await resolver.resolve()).names
        assert set(names) == {"planner", "generator", "critic"}
        assert all(name.startswith("sketch/") for name in names.values())
    with pytest.raises(FoundryError, match="no planner and critic were promoted"):
        async with make_resolver(home, "promoted"):
            pass


PLANNER, CRITIC = "checkpoint/planner_sft_checkpoint@1", "checkpoint/critic_rl_checkpoint@1"


async def test_agents_can_be_named_one_by_one(home, both, publish, untrained):
    publish("critic_sft_checkpoint", "7", status="candidate")

    async def names(agents="auto", **named):
        async with make_resolver(home, agents, **named) as resolver:
            resolved = (await resolver.resolve()).names
        assert resolved["generator"].startswith("sketch/"), "the profile's"
        return resolved["planner"], resolved["critic"]

    assert await names() == (PLANNER, CRITIC)
    assert (await names("profile"))[1].startswith("sketch/")
    chosen = await names(critic="critic_sft_checkpoint@7")
    assert chosen == (PLANNER, "checkpoint/critic_sft_checkpoint@7")
    assert await names(planner=str(untrained)) == ("checkpoint/tiny@1", CRITIC)
    assert await names(planner="promoted", critic="promoted") == (PLANNER, CRITIC)
    with pytest.raises(FoundryError, match="no checkpoint critic_rl_checkpoint@2"):
        await names(critic="critic_rl_checkpoint@2")


async def test_a_new_promotion_replaces_the_agents_of_later_requests_if_it_can_be_loaded(
    home, both, publish, monkeypatch, caplog
):
    def promote(version, instead_of):
        publish("critic_rl_checkpoint", instead_of, status="candidate")
        publish("critic_rl_checkpoint", version)

    monkeypatch.setattr(agent_resolver, "_POLL_SECONDS", 0.05)
    async with make_resolver(home) as resolver, asyncio.timeout(120):
        before = await resolver.resolve()
        promote("2", instead_of="1")
        while (now := await resolver.resolve()) is before:
            await asyncio.sleep(0.05)
        assert now.names["critic"] == "checkpoint/critic_rl_checkpoint@2"
        assert before.names["critic"] == "checkpoint/critic_rl_checkpoint@1"
        assert now.planner is before.planner
        assert now.generator is before.generator
        promote("3", instead_of="2")
        folder = home.local / "checkpoints" / "critic_rl_checkpoint" / "3"
        (folder / "config.json").unlink()
        while "are not replaced" not in caplog.text:
            await asyncio.sleep(0.05)
        assert await resolver.resolve() is now


async def test_a_request_names_planner_and_critic(home, both, publish, untrained):
    publish("critic_rl_checkpoint", "0", status="candidate")
    publish("planner_sft_checkpoint", "0", status="candidate")

    async with make_resolver(home, "profile") as resolver:

        async def names(planner=None, critic=None):
            resolved = (await resolver.resolve(RequestedAgents(planner, critic))).names
            return resolved["planner"], resolved["critic"]

        own_planner, own_critic = await names()
        assert "checkpoint" not in own_planner + own_critic
        assert await names("promoted", "promoted") == (PLANNER, CRITIC)
        older = "checkpoint/planner_sft_checkpoint@0", "checkpoint/critic_rl_checkpoint@0"
        assert await names("planner_sft_checkpoint@0", "critic_rl_checkpoint@0") == older
        assert await names(str(untrained)) == ("checkpoint/tiny@1", own_critic)
        assert await names(critic="rl") == (own_planner, CRITIC)
        assert await names("promoted", "base") == (PLANNER, own_critic)
        assert await resolver.critics() == ["base", "rl"]
        unknown = {"sft": "no critic sft here", "stern": "no such checkpoint folder: stern"}
        for critic, reason in unknown.items():
            with pytest.raises(FoundryError, match=reason):
                await names(critic=critic)
        publish("critic_sft_checkpoint", "4", status="candidate")
        assert await names("promoted", "sft") == (PLANNER, "checkpoint/critic_sft_checkpoint@4")
        assert await resolver.critics() == ["base", "sft", "rl"]


async def test_agents_that_requests_named_do_not_pile_up(home, both, publish):
    versions = [str(number) for number in range(10, 16)]
    for version in versions:
        publish("critic_rl_checkpoint", version, status="candidate")
    async with make_resolver(home) as resolver:
        for version in versions:
            agents = RequestedAgents(critic=f"critic_rl_checkpoint@{version}")
            critic = weakref.ref((await resolver.resolve(agents)).critic)
            if version == versions[0]:
                first = critic
        gc.collect()
        assert first() is None and critic() is not None
