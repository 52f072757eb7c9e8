"""The ledger has all that a provider bills: answers, and requests that were cut off."""

import asyncio
import multiprocessing
import os
import random
import signal
import time
from collections import Counter

import pytest

from inference.backends.providers.chat import ChatTurn, CompletionRequest, LikelyCosts
from inference.backends.providers.settings import Price
from inference.backends.providers.structured import CompletionResult
from inference.events import PlanReady
from inference.generation.requests import GenerationRequest
from inference.generation.runner import GenerationRunner
from inference.settings import Limits
from tests.inference.backends.providers.faulty_provider import KEY, FaultSchedule, provider
from tests.inference.backends.providers.provider_roles import provider_roles
from warehouse import Home
from warehouse.sql import query

PRICES = {"m-1": {"input": 1.0, "output": 10.0}, "banana": {"picture": 0.04}}
BILL = {"text": 0.002, "image": 0.04}  # each answer has 1000 tokens in and 100 out
# Two images under way: three kills book at most six that were not billed, below 3 % of the bill.
LIMITS = Limits(agents=4, generator=2, tries=6, backoff_seconds=0.01, call_timeout_seconds=30)
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.inference.generation.test_ledger"])


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("TEST_KEY", KEY)


def resolved(server, home, usd=1000.0):
    profile = {"prices": PRICES, "budget": {"usd": usd}}
    return provider_roles(server, "gemini", home, profile=profile, timeout_seconds=20)


def billed(server):
    return sum(BILL[kind] * count for kind, count in server.billed.items())


def booked(home):
    sums = "select sum(cost_usd) usd, sum(estimated_usd) estimated from model_calls"
    return query(sums, home).iloc[0]


async def answer(runner, request, roles):
    async for _ in runner.run(request, roles):
        pass


async def test_a_draw_that_is_cancelled_is_booked(tmp_path):
    home = Home(tmp_path)
    with provider(FaultSchedule(latency=0.3)) as server:
        async with GenerationRunner(home, LIMITS) as runner:
            events = runner.run(GenerationRequest("A red house"), resolved(server, home))
            async for event in events:
                if isinstance(event, PlanReady):
                    break
            drawing = asyncio.ensure_future(anext(events))  # StepStarted
            await drawing
            drawing = asyncio.ensure_future(anext(events))
            while not server.billed["image"]:
                await asyncio.sleep(0.01)
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)
            await events.aclose()
        assert server.billed == Counter(text=1, image=1)
    assert booked(home).usd == pytest.approx(0.042) and booked(home).estimated == pytest.approx(
        0.04
    )
    cut_off = query("from model_calls where estimated_usd is not null", home)
    assert cut_off.error.tolist() == ["cancelled before its answer arrived"]


@pytest.mark.parametrize("faults", [["cut", "garble"], ["garble", "cut"]], ids=" then ".join)
async def test_a_picture_that_cannot_be_decoded_is_booked(tmp_path, faults):
    home = Home(tmp_path)
    with provider() as server:
        server.scripts = [None, *faults]
        async with GenerationRunner(home, LIMITS) as runner:
            await answer(runner, GenerationRequest("A red house"), resolved(server, home))
    assert booked(home).usd == pytest.approx(billed(server), rel=0.2)
    assert booked(home).usd >= billed(server) - 1e-9 and booked(home).estimated > 0


async def test_an_answer_without_content_is_booked(tmp_path):
    home = Home(tmp_path)
    with provider() as server:
        server.scripts = ["empty"]
        async with GenerationRunner(home, LIMITS) as runner:
            await answer(runner, GenerationRequest("A red house"), resolved(server, home))
    assert booked(home).usd >= billed(server) - 1e-9 and booked(home).estimated > 0


def test_refusals_are_no_examples_of_costs():
    request = CompletionRequest("m-1", (ChatTurn("user", ("A red house",)),))
    costs, price = LikelyCosts(), Price(input=1.0, output=10.0)
    before = costs.of(request, price)
    costs.note(request, price, CompletionResult("", refusal="SAFETY", input_tokens=3))
    assert costs.of(request, price) == before > 0
    costs.note(request, price, CompletionResult("A plan", input_tokens=3, output_tokens=20))
    assert costs.of(request, price) == pytest.approx((3 * 1.0 + 20 * 10.0) / 1e6)


def test_a_call_cut_off_by_a_kill_is_booked_and_made_again(tmp_path):
    home, request = Home(tmp_path), GenerationRequest("A red house")
    with provider(FaultSchedule(latency=0.5)) as server:
        process = start(server.url, tmp_path, [request])
        while not server.billed["image"]:
            time.sleep(0.01)
        kill(process)
        server.schedule.latency = 0.0
        asyncio.run(serve(server.url, tmp_path, [request]))
    rows = query("from model_calls order by started_at", home)
    assert rows.call_id.is_unique and rows.error.notna().sum() == 1
    assert (
        rows[rows.error.notna()].error.item() == "the process was stopped before its answer arrived"
    )
    assert booked(home).usd == pytest.approx(billed(server))
    assert booked(home).estimated == pytest.approx(0.04)


@pytest.mark.long
def test_never_less_is_booked_than_billed_over_kills_and_faults(tmp_path):
    """And at most 3 % more; 20 % of the requests fail."""
    home, generator = Home(tmp_path), random.Random(3)
    faults = dict.fromkeys(("throttle", "error", "reset", "cut", "garble"), 0.04)
    requests = [
        GenerationRequest(f"A {colour} {thing}, a cat and a cloud", key=f"{colour} {thing}")
        for colour in ("red", "blue", "yellow", "green", "purple", "orange")
        for thing in ("house", "tree", "flower", "car", "circle", "star")
    ]
    kills = 0
    with provider(FaultSchedule(faults, latency=0.25, retry_after=0.1)) as server:
        for _ in range(3):
            process, before = start(server.url, tmp_path, requests), sum(server.billed.values())
            due = before + generator.randint(50, 90)
            while process.is_alive() and sum(server.billed.values()) < due:
                process.join(0.005)
            kills += process.is_alive()
            kill(process)
        asyncio.run(serve(server.url, tmp_path, requests))
    print(f"{kills} kills: {billed(server):.3f} USD billed, {booked(home).usd:.3f} booked, ")
    print(f"of which {booked(home).estimated:.3f} are estimates; {dict(server.outcomes)}")
    assert kills >= 2
    assert 1 - 1e-9 <= booked(home).usd / billed(server) <= 1.03
    calls = query("select count(*) n, count(distinct call_id) ids from model_calls", home).iloc[0]
    assert calls.n == calls.ids
    rows = query("select count(*) n, count(distinct generation_id) ids from generations", home)
    assert rows.n[0] == rows.ids[0] == len(requests)


async def serve(url, folder, requests):
    """Answer requests, four at a time; those that ended before are answered from the journal."""
    from tests.inference.backends.providers.faulty_provider import Provider

    os.environ["TEST_KEY"] = KEY
    home = Home(folder)
    roles = resolved(Provider(url, FaultSchedule()), home)
    slots = asyncio.Semaphore(4)
    async with GenerationRunner(home, LIMITS) as runner:

        async def one(request):
            async with slots:
                await answer(runner, request, roles)

        await asyncio.gather(*map(one, requests))


def run(*arguments):
    asyncio.run(serve(*arguments))


def start(*arguments):
    process = PROCESSES.Process(target=run, args=arguments)
    process.start()
    return process


def kill(process):
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
