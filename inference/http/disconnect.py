"""Work for a client that may disconnect."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

Result = TypeVar("Result")


async def run_while_connected(
    request: Request, work: Coroutine[Any, Any, Result], timeout: float | None = None
) -> Result:
    """The result of `work`, which is cancelled when the client disconnects or time is up.

    Args:
        request: one whose body has been read.
        timeout: in seconds.

    Raises:
        ClientDisconnect: the client disconnected.
        TimeoutError: it took too long.
    """
    working = asyncio.create_task(work)
    disconnect = asyncio.create_task(_wait_disconnect(request))
    try:
        await asyncio.wait({working, disconnect}, timeout=timeout, return_when="FIRST_COMPLETED")
        if working.done():
            return working.result()
        if disconnect.done():
            raise ClientDisconnect
        raise TimeoutError
    finally:
        working.cancel()
        disconnect.cancel()


async def _wait_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
