"""Batch mode: half the price, and nothing submitted twice, whenever the run was killed."""

import asyncio

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.pack import load_pack
from assets.prompts.settings import BankSettings
from inference.backends.factory import Backends
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard, score_shard
from tests.inference.backends.providers.faulty_provider import Weather, provider
from tests.inference.backends.providers.provider_roles import AGENT, cast

LIMITS = Limits(agents=2, tries=3, backoff_seconds=0.05)
LOOP = LoopSettings(t_max=2)


@pytest.fixture(scope="module")
def prompts():
    rows = generate_bank(load_pack("sketchbook"), BankSettings(), 20)
    return [row for row in rows if not row.input_images][:12]


def roles(server, backend, home, **more):
    patient = AGENT | {"batch": True}
    agents = {"planner": patient, "scorer": patient}
    pace = {"timeout_seconds": 5, "gather_seconds": 0.3, "poll_seconds": 0.05}
    return cast(server, backend, home, agents, more, **pace)


def planned(prompts, players, home, limits=LIMITS):
    return asyncio.run(plan_shard(prompts, players, home, LOOP, limits))


def test_a_shard_is_planned_and_scored_in_two_batches(backend, prompts, home):
    price = {"m-1": {"input": 1.0, "output": 10.0}}
    with provider() as server:
        players = roles(server, backend, home, prices=price, budget={"usd": 10})
        plans = planned(prompts, players, home)

        async def rest():
            shard = prompts[0].shard
            told = await run_shard(prompts, plans.plans, players, home, shard, LOOP, LIMITS)
            tables = (told.attempts, told.trajectories, plans.plans)
            return told, await score_shard(*tables, players, home, shard, LIMITS)

        told, scored = asyncio.run(rest())
        sizes = [batch["size"] for batch in server.batches.values()]
    assert not server.requests
    pictures = {(row.source_image, row.image, row.step_number) for row in told.attempts}
    assert sizes[0] == len(prompts)
    assert len(sizes) == 2
    assert len(pictures) <= sizes[1] <= len(told.attempts)
    assert len(scored.scores) == len(told.attempts)
    assert [call.cost_usd for call in plans.calls] == pytest.approx([0.001] * len(prompts))
    assert all(call.seconds < 5 for call in plans.calls)


def killed_while_waiting(prompts, players, home, server):
    """A run that ends after its batch was submitted, and before it is done."""

    async def run():
        task = asyncio.create_task(plan_shard(prompts, players, home, LOOP, LIMITS))
        while not server.batches:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    server.polls = 10**6
    asyncio.run(run())
    server.polls = 0


def forget_id(players):
    """As if it had been killed between the provider's answer and our note of it."""
    book = players.planner._chat._batches._book
    with book._books.open() as books:
        assert books.execute("UPDATE batches SET id = NULL").rowcount == 1


@pytest.mark.parametrize("noted", [True, False], ids=["id noted", "id not noted"])
def test_a_killed_run_finds_its_batch_again(backend, prompts, home, noted):
    with provider() as server:
        players = roles(server, backend, home)
        killed_while_waiting(prompts, players, home, server)
        if not noted:
            forget_id(players)
        plans = planned(prompts, roles(server, backend, home), home)
    assert len(server.batches) == 1
    assert len({row.prompt_id for row in plans.plans}) == len(prompts)


def test_a_batch_that_never_got_there_is_submitted_again(backend, prompts, home):
    with provider() as server:
        players = roles(server, backend, home)
        killed_while_waiting(prompts, players, home, server)
        forget_id(players)
        server.batches.clear()
        plans = planned(prompts, roles(server, backend, home), home)
    assert len(server.batches) == 1
    assert len({row.prompt_id for row in plans.plans}) == len(prompts)


@pytest.mark.parametrize("loss", ["error", "empty"])
def test_what_a_batch_loses_goes_into_another(backend, prompts, home, loss):
    with provider(Weather({loss: 0.3}, seed=1)) as server:
        limits = LIMITS.model_copy(update={"tries": 9})
        plans = planned(prompts, roles(server, backend, home), home, limits)
        sizes = [batch["size"] for batch in server.batches.values()]
    assert sizes[0] == len(prompts)
    assert 0 < sum(sizes[1:]) < len(prompts)
    assert len({row.prompt_id for row in plans.plans}) == len(prompts)
    assert max(server.answered.values()) == 1


def test_a_critic_cannot_wait(backend):
    with pytest.raises(ValueError, match=r"critic\.batch"):
        Backends.model_validate(
            {
                "roles": dict.fromkeys(("planner", "critic", "generator", "scorer"), "sketch"),
                backend: {"critic": {"model": "m-1", "batch": True}},
            }
        )
