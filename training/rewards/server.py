"""The reward service over HTTP, for the trainer's processes.

It listens at a free port, on loopback or on an address that other nodes reach, and requires a
random bearer token. The client (`verl_client.py`) reads both from a file that only their user can
read: command lines and environments of a cluster's processes are shown to others, and logged.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from anyio.from_thread import start_blocking_portal
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inference.http.auth import AuthMiddleware, Keys
from inference.http.body_reader import BodyReader
from inference.http.errors import install_error_handlers
from inference.http.server import HTTPServer, listening_socket

from .service import RewardRequest, RewardService

LOOPBACK = "127.0.0.1"
_MAX_BYTES = 16 * 2**20
_MAX_BODIES = 64  # of the largest size
_READ_SECONDS = 120.0
_IDLE_SECONDS = 60.0
_GRACE_SECONDS = 1  # for open requests when training has ended
_RESPONSE_FIELDS = {"status", "reward", "format", "accuracy", "step_reward", "seconds"}


@dataclass(frozen=True)
class RewardAddress:
    """URL and bearer token of the reward service."""

    url: str
    token: str = field(repr=False)

    @contextmanager
    def written_to(self, path: Path) -> Iterator[None]:
        """A file for the client, while the context is open."""
        path.unlink(missing_ok=True)  # of a run that was killed
        path.touch(mode=0o600)
        path.write_text(json.dumps({"url": self.url, "token": self.token}), "utf-8")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@asynccontextmanager
async def serve_rewards(
    service: RewardService, host: str = LOOPBACK
) -> AsyncIterator[RewardAddress]:
    """Serve in the running event loop."""

    async def reward(request: Request) -> Response:
        reward_request, _ = await bodies.read_json(request, RewardRequest)
        row = await service.reward(reward_request)
        return JSONResponse(row.model_dump(include=_RESPONSE_FIELDS))

    bodies = BodyReader(_MAX_BODIES * _MAX_BYTES, _READ_SECONDS)
    token = secrets.token_urlsafe(32)
    app = Starlette(routes=[Route("/reward", reward, methods=["POST"])])
    app.add_middleware(AuthMiddleware, keys=Keys([token]), max_bytes=_MAX_BYTES)
    install_error_handlers(app)
    server = HTTPServer(app, _IDLE_SECONDS, _GRACE_SECONDS, handle_signals=False)
    with listening_socket(host, 0) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield RewardAddress(f"http://{host}:{port}/reward", token)
        finally:
            server.should_exit = True
            await serving


@contextmanager
def serve_rewards_in_thread(
    service: RewardService, host: str = LOOPBACK
) -> Iterator[RewardAddress]:
    """`serve_rewards` in a separate thread, for a caller that waits for a child process."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve_rewards(service, host)) as address,
    ):
        yield address
