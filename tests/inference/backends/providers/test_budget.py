"""A budget is shared by processes and never exceeded."""

import asyncio
import multiprocessing
import sqlite3
import time
from contextlib import closing

import pytest

from inference.backends.providers.budget import Budget
from inference.backends.providers.settings import Price
from inference.calls.retry import PausableTimeout
from inference.roles import BackendError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "home" / "spending.sqlite"


def spent(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT usd FROM spent").fetchone()[0]


async def spend(budget, max_cost, cost, seconds=0.0):
    async with budget.reserve(max_cost) as reservation:
        await asyncio.sleep(seconds)
        reservation.cost = cost


def test_the_actual_cost_is_recorded_and_a_failed_call_costs_nothing(path):
    budget = Budget(path, 1.0, 60)

    async def fail():
        async with budget.reserve(0.5):
            raise ValueError

    asyncio.run(spend(budget, max_cost=0.5, cost=0.2))
    with pytest.raises(ValueError):
        asyncio.run(fail())
    assert spent(path) == pytest.approx(0.2)
    asyncio.run(spend(budget, 0.8, 0.8))


def test_calls_wait_for_reservations_of_others(path):
    budget = Budget(path, 1.0, 60)

    async def ten():
        await asyncio.gather(*(spend(budget, 0.5, 0.05, 0.01) for _ in range(10)))

    asyncio.run(ten())
    assert spent(path) == pytest.approx(0.5)


def test_a_call_that_is_cancelled_before_it_starts_frees_its_reservation(path):
    budget = Budget(path, 1.0, 60)

    async def main():
        slots, ready = asyncio.Semaphore(1), asyncio.Event()

        async def call():
            async with PausableTimeout(60, slots).running():
                await ready.wait()
                await spend(budget, 1.0, 1.0)

        task = asyncio.create_task(call())
        await asyncio.sleep(0)
        other = asyncio.create_task(slots.acquire())  # gets the slot that the reserving call frees
        await asyncio.sleep(0)
        ready.set()
        await other
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(5):
            await spend(budget, 1.0, 0.1)

    asyncio.run(main())
    assert spent(path) == pytest.approx(0.1)


def test_reservations_of_a_killed_process_expire_as_spent(path):
    soon = time.time() + 0.2
    Budget(path, 1.0, 60)._try_reserve("killed", 0.6, soon)
    alive = Budget(path, 1.0, 60)
    assert not alive._try_reserve("mine", 0.6, soon)
    time.sleep(0.25)
    with pytest.raises(BackendError, match=r"0\.6 USD are spent"):
        alive._try_reserve("mine", 0.6, soon)


def _spender(path, calls):
    async def spend_all():
        budget = Budget(path, 1.0, 60)
        for _ in range(calls):
            await spend(budget, 0.1, 0.02)

    try:
        asyncio.run(spend_all())
    except BackendError:
        return


def test_processes_share_a_budget(path):
    context = multiprocessing.get_context("forkserver")
    workers = [context.Process(target=_spender, args=(path, 40)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert 0.9 < spent(path) <= 1.0


def test_price():
    price = Price(input=2.0, output=10.0, cached_input=0.5, picture=0.04)
    assert price.cost(1_000_000, 100_000, cached_tokens=400_000) == pytest.approx(1.2 + 0.2 + 1.0)
    assert price.cost(images=2) == pytest.approx(0.08)
    assert Price(input=1).cost(1_000_000, cached_tokens=500_000) == 1.0
