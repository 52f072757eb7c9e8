"""Planner and critic with real (tiny) models, alone and in the loop."""

import asyncio

import pytest

from inference.backends.checkpoint.backend import (
    CheckpointBackend,
    CheckpointCritic,
    CheckpointModel,
)
from inference.calls.retry import CallUsage, collect_usage
from inference.roles import Critic, Planner, PlanRequest, UnusableAnswerError
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard
from schemas import BadImageError
from tests.inference.backends.checkpoint.tiny_agents import (
    ACCEPTED,
    PLANNED,
    critic_query,
    planner_query,
    texts_of,
)
from tests.inference.scripted_world import SHARD, prompt_row, roles, tiny_image
from warehouse import EncodedImage


def agents_of(folder, home):
    settings = CheckpointBackend(planner=str(folder), critic=str(folder), device="cpu", batch=8)
    return settings.local_agents(["planner", "critic"], home)


@pytest.fixture
def random_agents(untrained, home):
    return agents_of(untrained, home)


@pytest.fixture
def overfitted_agents(overfitted, home):
    return agents_of(overfitted, home)


async def test_trained_answers_are_returned(overfitted_agents):
    planner, critic = overfitted_agents["planner"], overfitted_agents["critic"]
    assert isinstance(planner, Planner) and isinstance(critic, Critic)
    plan, verdict = await asyncio.gather(
        planner.plan(PlanRequest("a story")),
        critic.judge(None, EncodedImage.white((96, 96)), "Draw a cat.", ""),
    )
    assert plan == PLANNED
    assert verdict == ACCEPTED


async def test_a_missing_earlier_image_is_white_and_as_large(random_agents):
    after = tiny_image(1)
    critic, white = random_agents["critic"], EncodedImage.white(after.image.size)
    assert await critic.judge(None, after, "a cat", "") == await critic.judge(
        white, after, "a cat", ""
    )


async def test_an_answer_that_cannot_be_read_is_asked_for_once_more(untrained, random_agents):
    """And sampled: a greedy one would be the same."""
    white = EncodedImage.white((96, 96))
    usage = CallUsage()
    with collect_usage(usage):
        verdict = await random_agents["critic"].judge(white, white, "a cat", "")
    first = texts_of(CheckpointModel(untrained), [critic_query("a cat", white, white)])
    assert usage.retries == 1 and not verdict.accepted
    assert verdict.reasoning not in ("", first[0].strip())


async def test_sampled_answers_are_sampled_from_the_first_one_on(untrained, monkeypatch):
    model, white, decodings = CheckpointModel(untrained), EncodedImage.white((96, 96)), []

    async def complete(query):
        decodings.append(query.decoding)
        return await CheckpointModel.complete(model, query)

    monkeypatch.setattr(model, "complete", complete)
    critic = CheckpointCritic(model, "sampled")
    assert critic.model == f"{CheckpointCritic(model).model}-sampled"
    await critic.judge(white, white, "a cat", "")
    assert decodings == ["sampled", "sampled"]


async def test_a_broken_image_does_not_affect_the_rest_of_its_batch(overfitted_agents):
    critic, white = overfitted_agents["critic"], EncodedImage.white((96, 96))
    good, bad = await asyncio.gather(
        critic.judge(white, white, "Draw a cat.", ""),
        critic.judge(white, EncodedImage(b"broken"), "Draw a cat.", ""),
        return_exceptions=True,
    )
    assert good == ACCEPTED
    assert isinstance(bad, BadImageError)


async def test_an_answer_without_a_plan_and_a_request_that_is_too_long_are_unusable(random_agents):
    with pytest.raises(UnusableAnswerError, match="no <answer>"):
        await random_agents["planner"].plan(PlanRequest("a story"))
    with pytest.raises(UnusableAnswerError, match="more than the 4096 that tiny@1 can handle"):
        await random_agents["planner"].plan(PlanRequest("word " * 5000))


def test_answers_do_not_depend_on_the_batch(untrained):
    queries = [critic_query(f"{n} cats " * n, tiny_image(n), tiny_image(n, n)) for n in range(1, 7)]
    queries += [planner_query("a long walk " * 9), planner_query("b")]
    one = texts_of(CheckpointModel(untrained, CheckpointBackend(batch=1)), queries)
    assert texts_of(CheckpointModel(untrained, CheckpointBackend(batch=64)), queries) == one
    few = texts_of(CheckpointModel(untrained, CheckpointBackend(batch_tokens=300)), queries)
    assert few == one


async def test_the_loop_runs_with_trained_agents(overfitted_agents, home):
    prompts = [prompt_row(f"p{n}") for n in range(6)]
    backends, settings = roles(**overfitted_agents), LoopSettings(t_max=2)
    limits = Limits(agents=6, backoff_seconds=0, failure_share=0)
    planned_shard = await plan_shard(prompts, backends, home, settings, limits)
    assert {row.prompt for row in planned_shard.plans} == {PLANNED.steps[0].prompt}
    assert {row.planner for row in planned_shard.plans} == {"checkpoint/tiny@1"}
    run = await run_shard(prompts, planned_shard.plans, backends, home, SHARD, settings, limits)
    assert len(run.trajectories) == 6
    critic_calls = [call for call in run.calls if call.role == "critic"]
    assert all(call.input_tokens and call.output_tokens for call in critic_calls)
    assert {(call.backend, call.model) for call in critic_calls} == {("checkpoint", "tiny@1")}
