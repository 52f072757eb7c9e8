"""Who plays: promoted checkpoints as they change, the profile's own agents, a critic by choice."""

import asyncio
import shutil

import pytest

from inference.backends.checkpoint.settings import CheckpointSettings
from inference.backends.factory import Backends, RoleBindings
from inference.generation import agent_resolver
from inference.generation.agent_resolver import PromotedAgentResolver
from schemas import FoundryError
from schemas.training import CHECKPOINTS
from tests.helpers.checkpoint_rows import checkpoint_row
from tests.inference.backends.checkpoint.tiny_agents import BOTH

TEACHERS = RoleBindings(planner="sketch", generator="sketch", critic="sketch", scorer="sketch")


@pytest.fixture
def publish(home, untrained):
    """Registers a version with (random) weights."""

    def published(name, role, version, status="promoted"):
        folder = home.local / "checkpoints" / name / version
        if not folder.exists():
            shutil.copytree(untrained, folder)
            about = {"name": name, "version": version, "role": role}
            (folder / "interleave.json").write_text(BOTH.model_copy(update=about).model_dump_json())
        row = checkpoint_row(name, version, folder, status)
        home.lake.write(CHECKPOINTS, [row], f"{name}-{version}")

    return published


@pytest.fixture
def both(publish):
    publish("planner_sft_checkpoint", "planner", "1")
    publish("critic_rl_checkpoint", "critic", "1")


def casting_of(home, agents="auto"):
    settings = CheckpointSettings(device="cpu")
    return PromotedAgentResolver(Backends(roles=TEACHERS, checkpoint=settings), home, agents)


async def test_without_promoted_agents_the_profiles_own_play(home):
    async with casting_of(home) as players:
        names = (await players.cast()).names
    assert set(names) == {"planner", "generator", "critic"}
    assert all(name.startswith("sketch/") for name in names.values())


async def test_what_was_promoted_plays_with_the_profiles_generator(home, both):
    async with casting_of(home) as players:
        cast = await players.cast()
    assert cast.names["planner"] == "checkpoint/planner_sft_checkpoint@1"
    assert cast.names["critic"] == "checkpoint/critic_rl_checkpoint@1"
    assert cast.names["generator"].startswith("sketch/")


async def test_half_a_pair_is_not_enough(home, publish):
    publish("planner_sft_checkpoint", "planner", "1")
    async with casting_of(home) as players:
        assert (await players.cast()).names["planner"].startswith("sketch/")
    with pytest.raises(FoundryError, match="no planner and critic were promoted"):
        async with casting_of(home, "promoted"):
            pass


async def test_the_profile_may_insist(home, both):
    async with casting_of(home, "profile") as players:
        assert (await players.cast()).names["critic"].startswith("sketch/")


async def test_a_new_promotion_is_taken_over_and_old_stories_keep_theirs(
    home, both, publish, monkeypatch
):
    monkeypatch.setattr(agent_resolver, "_LOOK_SECONDS", 0.05)
    async with casting_of(home) as players:
        before = await players.cast()
        publish("critic_rl_checkpoint", "critic", "1", status="candidate")
        publish("critic_rl_checkpoint", "critic", "2")
        async with asyncio.timeout(60):
            while (now := await players.cast()) is before:
                await asyncio.sleep(0.05)
        assert now.names["critic"] == "checkpoint/critic_rl_checkpoint@2"
        assert before.names["critic"] == "checkpoint/critic_rl_checkpoint@1"
        assert now.roles.planner is before.roles.planner
        assert now.roles.generator is before.roles.generator


async def test_what_cannot_be_loaded_changes_nothing(home, both, publish, monkeypatch, caplog):
    monkeypatch.setattr(agent_resolver, "_LOOK_SECONDS", 0.05)
    async with casting_of(home) as players:
        before = await players.cast()
        publish("critic_rl_checkpoint", "critic", "1", status="candidate")
        publish("critic_rl_checkpoint", "critic", "2")
        folder = home.local / "checkpoints" / "critic_rl_checkpoint" / "2"
        (folder / "config.json").unlink()
        async with asyncio.timeout(60):
            while "stay as they are" not in caplog.text:
                await asyncio.sleep(0.05)
        assert await players.cast() is before


async def test_a_critic_may_be_chosen_by_its_training(home, both, publish):
    publish("critic_sft_checkpoint", "critic", "4", status="candidate")
    async with casting_of(home) as players:
        names = (await players.cast("sft")).names
        assert names["critic"] == "checkpoint/critic_sft_checkpoint@4"
        assert names["planner"] == "checkpoint/planner_sft_checkpoint@1"
        assert (await players.cast("rl")).names["critic"].endswith("critic_rl_checkpoint@1")


@pytest.mark.parametrize("critic", ["sft", "stern"])
async def test_a_critic_that_is_not_there_is_one_line(home, both, critic):
    async with casting_of(home) as players:
        with pytest.raises(FoundryError, match=f"no critic {critic} here"):
            await players.cast(critic)
