"""A shard through a provider in bad weather: it completes, and nothing finished is called twice."""

import asyncio
from collections import Counter

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.pack import load_pack
from assets.prompts.settings import BankSettings
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard, score_shard
from schemas import FoundryError
from tests.inference.backends.providers.faulty_provider import FAULTS, KEY, Weather, provider
from tests.inference.backends.providers.provider_roles import cast
from warehouse import Home

PROMPTS = 30
BAD = {kind: 0.2 / len(FAULTS) for kind in FAULTS}
LIMITS = Limits(
    agents=16, generator=8, tries=6, backoff_seconds=0.05, call_timeout_seconds=3, failure_share=0.3
)


@pytest.fixture(scope="module")
def prompts():
    rows = generate_bank(load_pack("sketchbook"), BankSettings(), PROMPTS)
    return [row for row in rows if not row.input_images][:PROMPTS]


def roles(server, backend, home, **more):
    return cast(server, backend, home, profile=more, timeout_seconds=1)


async def whole_shard(prompts, players, home, limits=LIMITS):
    loop, shard = LoopSettings(t_max=3), prompts[0].shard
    planned = await plan_shard(prompts, players, home, loop, limits)
    told = await run_shard(prompts, planned.plans, players, home, shard, loop, limits)
    scored = await score_shard(
        told.attempts, told.trajectories, planned.plans, players, home, shard, limits
    )
    return planned, told, scored


def test_a_shard_completes_and_pays_for_nothing_twice(backend, prompts, tmp_path):
    home = Home(tmp_path)
    with provider(Weather(BAD, latency=0.002)) as server:
        players = roles(server, backend, home)
        asyncio.run(whole_shard(prompts, players, home))
        finished = finished_calls(home)
        server.weather.faults = {}
        planned, told, scored = asyncio.run(whole_shard(prompts, players, home))
        so_far = sum(server.requests.values())
        asyncio.run(whole_shard(prompts, players, home))
        repeated = sum(server.requests.values()) - so_far
    assert set(server.met) - {"fine"} == set(FAULTS)
    assert finished <= {row.call_id for rows in (planned, told, scored) for row in rows.calls}
    assert not repeated
    statuses = Counter(row.status for row in told.trajectories)
    aside = [row.reason for row in (*planned.quarantine, *told.quarantine, *scored.quarantine)]
    assert statuses["complete"] + statuses["exhausted"] >= 0.8 * len(prompts)
    # What stays away was refused for good: all else was asked again in better weather.
    assert all("refuses" in reason or "usable" in reason or "no plan" in reason for reason in aside)


def finished_calls(home):
    journals = (home.journal(asset, "sketchbook-0000") for asset in ("plans", "trajectories"))
    records = [record for journal in journals for record in journal.records()]
    assert any(record["call"]["error"] for record in records) or len(records) > 100
    return {record["call"]["call_id"] for record in records if record["answer"]}


def test_a_budget_stops_a_run_cleanly_and_more_money_ends_it(prompts, tmp_path):
    home = Home(tmp_path)
    price = {"m-1": {"input": 1.0, "output": 10.0}}
    with provider() as server:

        def run(usd):
            players = roles(server, "openai", home, prices=price, budget={"usd": usd})
            return asyncio.run(whole_shard(prompts[:10], players, home))

        with pytest.raises(FoundryError, match=r"budget of 0\.3 USD is used up"):
            run(0.3)
        paid = sum(server.answered.values())
        planned, told, scored = run(50)
    assert 0 < paid * 0.002 <= 0.3
    ledger = [*planned.calls, *told.calls, *scored.calls]
    cost = sum(row.cost_usd or 0 for row in ledger)
    assert cost == pytest.approx(sum(server.answered.values()) * 0.002)
    assert len(told.trajectories) == 10


def test_no_key_is_ever_written(prompts, tmp_path, caplog):
    home = Home(tmp_path)
    with provider(Weather(BAD, latency=0.0)) as server, caplog.at_level("DEBUG"):
        players = roles(server, "openai", home)
        asyncio.run(whole_shard(prompts[:5], players, home))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    assert KEY not in caplog.text
    assert KEY not in repr(players) + repr(players.planner.__dict__)
