"""Several calls at once, all of which end when one fails."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def gather_or_cancel(*work: Coroutine[Any, Any, Result]) -> list[Result]:
    """The results in order; nothing goes on after this, whatever happens.

    Raises what the first to fail raised.
    """
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
