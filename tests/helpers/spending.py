"""Processes that spend a budget; imports little, so that they start soon."""

import asyncio
import os
import signal

from inference.backends.providers.budget import Budget
from inference.roles import BackendError

SHARES = [0.5, 0.8, 0.95]


def spend(path, usd, calls=1, budget=1.0):
    """Calls of `usd` each, until they are made or the budget is used up."""

    async def make_calls():
        paid = Budget(path, budget, 60, SHARES)
        for _ in range(calls):
            async with paid.reserve(usd) as reservation:
                reservation.cost = usd

    try:
        asyncio.run(make_calls())
    except BackendError:
        return


def spend_and_die(path, usd):
    spend(path, usd)
    os.kill(os.getpid(), signal.SIGKILL)
