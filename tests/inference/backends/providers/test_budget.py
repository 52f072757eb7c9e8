"""A budget that processes share, and that is never exceeded."""

import asyncio
import multiprocessing
import time

import pytest

from inference.backends.providers.budget import Budget
from inference.backends.providers.prices import Price
from inference.roles import BackendError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "home" / "spending.sqlite"


async def spend(budget, most, cost, seconds=0.0):
    async with budget.reserved(most) as reservation:
        await asyncio.sleep(seconds)
        reservation.cost = cost


def test_what_a_call_did_cost_is_booked(path):
    budget = Budget(path, 1.0, 60)
    asyncio.run(spend(budget, most=0.5, cost=0.2))
    assert budget.spent() == pytest.approx(0.2)


def test_a_failed_call_costs_nothing(path):
    budget = Budget(path, 1.0, 60)

    async def fail():
        async with budget.reserved(0.5):
            raise ValueError

    with pytest.raises(ValueError):
        asyncio.run(fail())
    assert budget.spent() == 0
    asyncio.run(spend(budget, 1.0, 1.0))


def test_a_call_that_might_exceed_it_is_not_made_and_more_money_lets_it_go_on(path):
    asyncio.run(spend(Budget(path, 1.0, 60), 0.8, 0.8))
    with pytest.raises(BackendError, match=r"budget of 1 USD is used up: 0.8 USD are spent"):
        asyncio.run(spend(Budget(path, 1.0, 60), 0.3, 0.1))
    asyncio.run(spend(Budget(path, 2.0, 60), 0.3, 0.1))
    assert Budget(path, 2.0, 60).spent() == pytest.approx(0.9)


def test_calls_wait_for_what_others_have_reserved(path):
    budget = Budget(path, 1.0, 60)

    async def ten():
        await asyncio.gather(*(spend(budget, 0.5, 0.05, 0.01) for _ in range(10)))

    asyncio.run(ten())
    assert budget.spent() == pytest.approx(0.5)


def test_what_a_dead_process_had_reserved_counts_as_spent_after_a_while(path):
    soon = time.time() + 0.2
    Budget(path, 1.0, 60)._try_to_reserve("of the dead", 0.6, soon)
    alive = Budget(path, 1.0, 60)
    assert not alive._try_to_reserve("mine", 0.6, soon)
    time.sleep(0.25)
    with pytest.raises(BackendError, match=r"0\.6 USD are spent"):
        alive._try_to_reserve("mine", 0.6, soon)


def test_a_call_that_is_taken_up_again_reserves_once(path):
    soon = time.time() + 60
    Budget(path, 1.0, 60)._try_to_reserve("batch", 0.6, soon)
    assert Budget(path, 1.0, 60)._try_to_reserve("batch", 0.6, soon)


def _spender(path, calls):
    async def all_of_them():
        budget = Budget(path, 1.0, 60)
        for _ in range(calls):
            await spend(budget, 0.1, 0.02)

    try:
        asyncio.run(all_of_them())
    except BackendError:
        return


def test_processes_share_it(path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_spender, args=(path, 40)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert 0.9 < Budget(path, 1.0, 60).spent() <= 1.0


def test_a_price():
    price = Price(input=2.0, output=10.0, cached_input=0.5, picture=0.04)
    assert price.cost(1_000_000, 100_000, cached_tokens=400_000) == pytest.approx(1.2 + 0.2 + 1.0)
    assert price.cost(pictures=2) == pytest.approx(0.08)
    assert Price(input=1).cost(1_000_000, cached_tokens=500_000) == 1.0
