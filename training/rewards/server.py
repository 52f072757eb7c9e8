"""The reward service over HTTP, for the trainer's processes on this machine.

It listens on loopback at a free port, and answers only to who knows its random token. Both reach
the client (`verl_client.py`) as environment variables.
"""

import hmac
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from anyio.from_thread import start_blocking_portal
from pydantic import ValidationError

from schemas.training import RolloutRow

from .service import RewardRequest, RewardService

_HOST = "127.0.0.1"
_MAX_BYTES = 16 * 2**20
_GRACE_SECONDS = 1.0  # for answers under way when training has ended
_ANSWERED = {"status", "reward", "format", "accuracy", "step_reward", "seconds"}


@dataclass(frozen=True)
class RewardAddress:
    """Where rewards are to be had, and the word that opens the door."""

    url: str
    token: str = field(repr=False)

    def environment(self) -> dict[str, str]:
        """What the client reads."""
        return {"INTERLEAVE_REWARD_URL": self.url, "INTERLEAVE_REWARD_TOKEN": self.token}


@asynccontextmanager
async def serve_rewards(service: RewardService) -> AsyncIterator[RewardAddress]:
    """Serve in the running event loop; on leaving, the service is closed."""
    token = secrets.token_urlsafe(32)
    app = _app(service, token)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GRACE_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, _HOST, 0)
        await site.start()
        port = runner.addresses[0][1]
        yield RewardAddress(f"http://{_HOST}:{port}/reward", token)
    finally:
        await runner.cleanup()
        await service.close()


@contextmanager
def rewards_served(service: RewardService) -> Iterator[RewardAddress]:
    """`serve_rewards` in a thread of its own, for a caller that waits for a child process."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve_rewards(service)) as address,
    ):
        yield address


def _app(service: RewardService, token: str) -> web.Application:
    async def reward(request: web.Request) -> web.Response:
        try:
            wanted = RewardRequest.model_validate_json(await request.read())
        except ValidationError as error:
            raise web.HTTPBadRequest(text=_first_problem(error)) from error
        row = await service.reward(wanted)
        return web.json_response(_answer(row))

    app = web.Application(client_max_size=_MAX_BYTES, middlewares=[_guard(token)])
    app.router.add_post("/reward", reward)
    return app


def _guard(token: str) -> Middleware:
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, expected):
            raise web.HTTPUnauthorized(text="not the token of this training run")
        return await handler(request)

    return guard


def _answer(row: RolloutRow) -> dict[str, object]:
    return row.model_dump(include=_ANSWERED)


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
