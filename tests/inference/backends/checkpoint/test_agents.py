"""Planner and critic at work with real (tiny) models, alone and in the loop."""

import asyncio

import pytest

from inference.backends.checkpoint.agents import checkpoint_agents
from inference.backends.checkpoint.model import load_checkpoint_model
from inference.backends.checkpoint.settings import CheckpointSettings
from inference.roles import Critic, Planner, PlanRequest, UnusableAnswerError
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard
from schemas import BadImageError
from tests.inference.backends.checkpoint.tiny_agents import (
    ACCEPTED,
    PLANNED,
    critic_asked,
    planner_asked,
)
from tests.inference.scripted_world import SHARD, picture, planned, prompt_row, roles
from warehouse import EncodedImage


def players_of(folder, home):
    settings = CheckpointSettings(planner=str(folder), critic=str(folder), device="cpu", batch=8)
    return checkpoint_agents(["planner", "critic"], settings, home)


@pytest.fixture
def random_players(untrained, home):
    return players_of(untrained, home)


@pytest.fixture
def taught_players(taught, home):
    return players_of(taught, home)


async def test_they_are_what_the_roles_ask_for(random_players):
    assert isinstance(random_players["planner"], Planner)
    assert isinstance(random_players["critic"], Critic)


async def test_what_was_learned_is_answered(taught_players):
    planner, critic = taught_players["planner"], taught_players["critic"]
    plan, verdict = await asyncio.gather(
        planner.plan(PlanRequest("a story")),
        critic.judge(None, EncodedImage.white((96, 96)), "Draw a cat.", ""),
    )
    assert plan == PLANNED
    assert verdict == ACCEPTED


async def test_a_missing_before_picture_is_white_and_as_large(untrained, random_players):
    after = picture(1)
    critic, white = random_players["critic"], EncodedImage.white(after.image.size)
    first = await critic.judge(None, after, "a cat", "")
    assert first == await critic.judge(white, after, "a cat", "")
    told = load_checkpoint_model(untrained).answer([critic_asked("a cat", white, after)])
    assert not first.accepted and first.reasoning == told[0].strip()


async def test_a_planner_that_writes_no_plan_is_a_bad_answer(random_players):
    with pytest.raises(UnusableAnswerError, match="no <answer>"):
        await random_players["planner"].plan(PlanRequest("a story"))


async def test_a_broken_picture_costs_the_others_of_its_batch_nothing(taught_players):
    critic, white = taught_players["critic"], EncodedImage.white((96, 96))
    good, bad = await asyncio.gather(
        critic.judge(white, white, "Draw a cat.", ""),
        critic.judge(white, EncodedImage(b"broken"), "Draw a cat.", ""),
        return_exceptions=True,
    )
    assert good == ACCEPTED
    assert isinstance(bad, BadImageError)


async def test_a_request_that_is_too_long_is_a_bad_answer(random_players):
    with pytest.raises(UnusableAnswerError, match="more than the 4096 that tiny@1 can handle"):
        await random_players["planner"].plan(PlanRequest("word " * 5000))


def test_answers_do_not_depend_on_company(untrained):
    asked = [critic_asked(f"{n} cats " * n, picture(n), picture(n, n)) for n in range(1, 7)]
    asked += [planner_asked("a long walk " * 9), planner_asked("b")]
    one = load_checkpoint_model(untrained, CheckpointSettings(batch=1)).answer(asked)
    assert load_checkpoint_model(untrained, CheckpointSettings(batch=64)).answer(asked) == one
    few = load_checkpoint_model(untrained, CheckpointSettings(batch_tokens=300)).answer(asked)
    assert few == one


async def test_the_loop_runs_with_trained_agents(taught_players, home):
    prompts = [prompt_row(f"p{n}") for n in range(6)]
    backends, settings = roles(**taught_players), LoopSettings(t_max=2)
    limits = Limits(agents=6, backoff_seconds=0, failure_share=0)
    made = await plan_shard(prompts, backends, home, settings, limits)
    assert {row.prompt for row in made.plans} == {PLANNED.steps[0].prompt}
    assert {row.planner for row in made.plans} == {"checkpoint/tiny@1"}
    told = await run_shard(prompts, made.plans, backends, home, SHARD, settings, limits)
    assert len(told.trajectories) == 6
    judged = [call for call in told.calls if call.role == "critic"]
    assert all(call.input_tokens and call.output_tokens for call in judged)
    assert {(call.backend, call.model) for call in judged} == {("checkpoint", "tiny@1")}


async def test_an_unreadable_critic_rejects_until_t_max(random_players, home):
    prompt = prompt_row()
    backends = roles(critic=random_players["critic"])
    plans = planned(prompt, "a cat")
    limits = Limits(backoff_seconds=0)
    told = await run_shard([prompt], plans, backends, home, SHARD, LoopSettings(t_max=3), limits)
    assert [(a.accepted, a.prompt) for a in told.attempts] == [(False, "a cat")] * 3
    assert not told.quarantine
