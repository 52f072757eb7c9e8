"""A shard with a faulty provider completes, and no finished call is made twice."""

import asyncio
from collections import Counter

import pytest

from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from assets.prompts.settings import BankSettings
from inference.settings import Limits, LoopSettings
from inference.shard import plan_shard, run_shard, score_shard
from schemas import FoundryError
from tests.inference.backends.providers.faulty_provider import FAULTS, KEY, FaultSchedule, provider
from tests.inference.backends.providers.provider_roles import provider_roles
from warehouse import Home

PROMPTS = 15
FAULT_SHARES = {kind: 0.2 / len(FAULTS) for kind in FAULTS}
LIMITS = Limits(
    agents=16, generator=8, tries=6, backoff_seconds=0.05, call_timeout_seconds=3, failure_share=0.3
)


@pytest.fixture(scope="module")
def prompts():
    rows = generate_bank(load_pack("sketchbook"), BankSettings(), PROMPTS)
    return [row for row in rows if not row.input_images][:PROMPTS]


def build_roles(server, backend, home, **profile):
    return provider_roles(server, backend, home, profile=profile, timeout_seconds=1)


async def run_all(prompts, roles, home, limits=LIMITS):
    loop, shard = LoopSettings(t_max=3), prompts[0].shard
    planned = await plan_shard(prompts, roles, home, loop, limits, begin_loops=True)
    run = await run_shard(prompts, planned.plans, roles, home, shard, loop, limits)
    scored = await score_shard(
        run.attempts, run.trajectories, planned.plans, roles, home, shard, limits
    )
    return planned, run, scored


def test_a_shard_completes_and_pays_for_nothing_twice(prompts, home):
    with provider(FaultSchedule(FAULT_SHARES, latency=0.002)) as server:
        roles = build_roles(server, "openai", home)
        asyncio.run(run_all(prompts, roles, home))
        finished = finished_calls(home)
        server.schedule.faults = {}
        planned, run, scored = asyncio.run(run_all(prompts, roles, home))
        so_far = sum(server.requests.values())
        asyncio.run(run_all(prompts, roles, home))
        repeated = sum(server.requests.values()) - so_far
    assert set(server.outcomes) - {"ok"} == set(FAULTS)
    assert finished <= {row.call_id for rows in (planned, run, scored) for row in rows.calls}
    assert not repeated
    statuses = Counter(row.status for row in run.trajectories)
    rows = (*planned.quarantine, *run.quarantine, *scored.quarantine)
    assert statuses["complete"] + statuses["exhausted"] >= 0.8 * len(prompts)
    # Only final refusals remain: all other failures were retried without faults.
    final = ("refuses", "usable", "no plan")
    assert all(any(word in row.reason for word in final) for row in rows)


def finished_calls(home):
    journals = (home.journal(asset, "sketchbook-0000") for asset in ("plans", "trajectories"))
    records = [record for journal in journals for record in journal.records()]
    assert any(record["call"]["error"] for record in records) or len(records) > 100
    return {record["call"]["call_id"] for record in records if record["answer"]}


def test_a_budget_stops_a_run_and_a_higher_one_completes_it(prompts, home):
    price = {"m-1": {"input": 1.0, "output": 10.0}}
    with provider() as server:

        def run_with(usd):
            roles = build_roles(server, "openai", home, prices=price, budget={"usd": usd})
            return asyncio.run(run_all(prompts[:5], roles, home))

        with pytest.raises(FoundryError, match=r"budget of 0\.15 USD is used up"):
            run_with(0.15)
        paid = sum(server.answered.values())
        planned, run, scored = run_with(50)
    assert 0 < paid * 0.002 <= 0.15
    ledger = [*planned.calls, *run.calls, *scored.calls]
    cost = sum(row.cost_usd or 0 for row in ledger)
    assert cost == pytest.approx(sum(server.answered.values()) * 0.002)
    assert len(run.trajectories) == 5


def test_no_key_is_ever_written(prompts, tmp_path, caplog):
    home = Home(tmp_path)
    with provider(FaultSchedule(FAULT_SHARES, latency=0.0)) as server, caplog.at_level("DEBUG"):
        roles = build_roles(server, "openai", home)
        asyncio.run(run_all(prompts[:3], roles, home))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    assert KEY not in caplog.text
    assert KEY not in repr(roles) + repr(roles.planner.__dict__)
