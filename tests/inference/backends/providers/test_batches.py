"""Batch APIs: half the price, and nothing submitted twice, whenever the run is killed."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from inference.backends.factory import Backends
from inference.calls.call_index import CallIndex
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard, score_shard
from tests.inference.backends.providers.faulty_provider import FaultSchedule, provider
from tests.inference.backends.providers.provider_roles import AGENT, provider_roles
from warehouse import Home

LIMITS = Limits(agents=2, tries=3, backoff_seconds=0.05)
LOOP = LoopSettings(t_max=2)


@pytest.fixture(scope="module")
def prompts():
    rows = generate_bank(load_pack("sketchbook"), BankSettings(), 20)
    return [row for row in rows if not row.input_images][:6]


def build_roles(server, backend, home, **profile):
    batched = AGENT | {"batch": True}
    agents = {"planner": batched, "scorer": batched}
    pace = {"timeout_seconds": 5, "gather_seconds": 0.3, "poll_seconds": 0.05}
    return provider_roles(server, backend, home, agents, profile, **pace)


def plan(prompts, roles, home, limits=LIMITS):
    return asyncio.run(plan_shard(prompts, roles, home, LOOP, limits))


def test_a_shard_is_planned_and_scored_in_two_batches(backend, prompts, home):
    price = {"m-1": {"input": 1.0, "output": 10.0}}
    with provider() as server:
        roles = build_roles(server, backend, home, prices=price, budget={"usd": 10})
        plans = plan(prompts, roles, home)

        async def run_and_score():
            shard = prompts[0].shard
            run = await run_shard(prompts, plans.plans, roles, home, shard, LOOP, LIMITS)
            tables = (run.attempts, run.trajectories, plans.plans)
            return run, await score_shard(*tables, roles, home, shard, LIMITS)

        run, scored = asyncio.run(run_and_score())
        sizes = [batch["size"] for batch in server.batches.values()]
    assert not server.requests
    images = {(row.source_image, row.image, row.step_number) for row in run.attempts}
    assert sizes[0] == len(prompts)
    assert len(sizes) == 2
    # semantics of every attempt, and quality of each image
    assert len(images) < sizes[1] <= 2 * len(run.attempts)
    assert len(scored.scores) == len(run.attempts)
    assert [call.cost_usd for call in plans.calls] == pytest.approx([0.001] * len(prompts))
    assert all(call.seconds < 5 for call in plans.calls)


def test_a_batch_may_take_longer_than_the_timeout_of_a_call(prompts, home):
    limits = LIMITS.model_copy(update={"call_timeout_seconds": 0.5, "tries": 1})
    with provider() as server:
        server.polls = 20  # a second
        planned = plan(prompts, build_roles(server, "openai", home), home, limits)
    assert len({row.prompt_id for row in planned.plans}) == len(prompts)
    assert not planned.quarantine and len(server.batches) == 1


def kill_while_waiting(prompts, roles, home, server):
    """A run that is killed after its batch was submitted, and before it is done."""

    async def run():
        task = asyncio.create_task(plan_shard(prompts, roles, home, LOOP, LIMITS))
        while not server.batches:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    server.polls = 10**6
    asyncio.run(run())
    server.polls = 0


def remove_id(roles):
    """As if it had been killed before it stored the id that the provider returned."""
    store = roles.planner._client.batches.store
    with store._file.transaction() as connection:
        assert connection.execute("UPDATE batches SET id = NULL").rowcount == 1


def test_a_killed_run_finds_its_batch_again(backend, prompts, tmp_path):
    """Whether the id was stored or not; one that the provider never received is made again."""
    with provider() as server:
        for case in ("id stored", "id not stored", "never received"):
            home = Home(tmp_path / case)
            server.batches.clear()
            roles = build_roles(server, backend, home)
            kill_while_waiting(prompts, roles, home, server)
            if case != "id stored":
                remove_id(roles)
            if case == "never received":
                server.batches.clear()
            plans = plan(prompts, build_roles(server, backend, home), home)
            assert len(server.batches) == 1
            assert len({row.prompt_id for row in plans.plans}) == len(prompts)


def test_a_batch_under_way_is_booked_as_an_estimate_until_its_answers_are_there(prompts, home):
    """It is billed whether or not the run goes on, and once."""
    price = {"m-1": {"input": 1.0, "output": 10.0}}

    def totals():
        calls = CallIndex.read(home.journal("plans", prompts[0].shard)).ledger()
        costs = [(call.cost_usd, call.estimated_usd or 0) for call in calls]
        return len(calls), *map(sum, zip(*costs, strict=True))

    def reserved():
        with closing(sqlite3.connect(home.local / "spending.sqlite")) as connection:
            return connection.execute(
                "SELECT usd, (SELECT count(*) FROM reserved) FROM spent"
            ).fetchone()

    with provider() as server:
        for _ in range(2):
            roles = build_roles(server, "openai", home, prices=price, budget={"usd": 10})
            kill_while_waiting(prompts, roles, home, server)
            count, cost, estimated = totals()
            assert count == len(prompts) and cost == estimated > 0
            assert reserved() == (0, len(prompts))
        roles = build_roles(server, "openai", home, prices=price, budget={"usd": 10})
        plan(prompts, roles, home)
    assert len(server.batches) == 1
    assert totals() == (len(prompts), pytest.approx(0.001 * len(prompts)), 0)
    assert reserved() == (pytest.approx(0.001 * len(prompts)), 0)


def test_requests_without_a_result_go_into_another_batch(backend, prompts, tmp_path):
    for loss in ("error", "empty"):
        home = Home(tmp_path / loss)
        with provider(FaultSchedule({loss: 0.3}, seed=1)) as server:
            limits = LIMITS.model_copy(update={"tries": 9})
            plans = plan(prompts, build_roles(server, backend, home), home, limits)
            sizes = [batch["size"] for batch in server.batches.values()]
        assert sizes[0] == len(prompts)
        assert 0 < sum(sizes[1:]) < len(prompts)
        assert len({row.prompt_id for row in plans.plans}) == len(prompts)
        assert max(server.answered.values()) == 1


def test_a_critic_cannot_use_batches():
    roles = dict.fromkeys(("planner", "critic", "generator", "scorer"), "sketch")
    with pytest.raises(ValueError, match=r"critic\.batch"):
        Backends(roles=roles, openai={"critic": {"model": "m-1", "batch": True}})
