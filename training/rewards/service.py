"""Computes the reward of a rollout as soon as it is there: grading overlaps with generation.

Each rollout has a request, an error handler and a line in the journal of its own, so that a
failure never affects another one.

The trainer's processes ask over HTTP, at a free port, on loopback or on an address that other nodes
reach, with a random bearer token. The client (`verl_client.py`) reads both from a file that only
their user can read: command lines and environments of a cluster's processes are shown to others,
and logged. Web libraries are imported by the server only: recipes import this module as well.
"""

import asyncio
import json
import secrets
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, Field

from schemas.training import RolloutRow
from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage, Journal

from .critic import CriticState
from .planner import PlannerState
from .reward import RewardParts
from .rollouts import Rollout, RolloutResult

_STEPS_IN_MEMORY = 64  # the journal has all
LOOPBACK = "127.0.0.1"
_MAX_BYTES = 16 * 2**20
_MAX_BODIES = 64  # of the largest size
_READ_SECONDS = 120.0
_IDLE_SECONDS = 60.0
_GRACE_SECONDS = 1  # for open requests when training has ended
_RESPONSE_FIELDS = {"status", "reward", "format", "accuracy", "step_reward", "seconds"}


class Reward(Protocol):
    """Grades the answers of a role, each to a row whose state the policy was shown."""

    async def grade(self, row_id: str, response: str, state: Any) -> RolloutResult: ...


@runtime_checkable
class EpisodeReward(Reward, Protocol):
    """Grades episodes, and says what their policy is asked next: see `next_question`."""

    async def next_turn(
        self, row_id: str, response: str, state: Any
    ) -> tuple[str, tuple[EncodedImage, ...]] | None: ...


class NextTurn(BaseModel):
    """What the policy is asked next, in an episode. `prompt` has `<image>` for each of `images`,
    which are encoded in base64; empty: the episode is over."""

    prompt: str = ""
    images: list[str] = []


class RewardRequest(ConfigModel):
    """The request for a rollout's reward."""

    step: int = Field(ge=0, description="Training step, 1-based; 0: before the first")
    row_id: str = Field(description="Row that was the prompt: the rollout's group")
    response: str = Field(description="The policy's answer")
    state: CriticState | PlannerState = Field(description="What the policy was shown")
    dev: bool = Field(False, description="It is not trained on: `step` is the last one done")


class RewardService:
    """Rewards of one training run.

    Args:
        run: version of the checkpoint that is being trained.
        journal: gets a line for every rollout; `rollouts.rollout_rows` reads them.
    """

    def __init__(self, rewards: Reward, run: str, journal: Journal) -> None:
        self._rewards = rewards
        self._run, self._journal = run, journal
        self._attempt = datetime.now(UTC).isoformat()
        self._samples: Counter[tuple[int, str]] = Counter()
        self._steps: dict[int, list[Rollout]] = {}
        self._evaluations: dict[int, list[Rollout]] = {}

    async def next_turn(self, request: RewardRequest) -> NextTurn:
        """The next question of the episode that a request's answers have played so far."""
        if not isinstance(self._rewards, EpisodeReward):
            return NextTurn()
        turn = await self._rewards.next_turn(request.row_id, request.response, request.state)
        if turn is None:
            return NextTurn()
        prompt, images = turn
        return NextTurn(prompt=prompt, images=[b64encode(each.data).decode() for each in images])

    async def reward(self, request: RewardRequest) -> RolloutRow:
        """The rollout with its reward, after its line is in the journal; `StorageError` if not."""
        group = (request.step, request.row_id)
        sample = self._samples[group]  # number in its group, in the order of arrival
        self._samples[group] += 1
        start = time.perf_counter()
        result = await self._rewards.grade(request.row_id, request.response, request.state)
        graded = result._asdict()
        parts: RewardParts = graded.pop("parts")
        row = RolloutRow(
            rollout_id=f"{self._run}/{request.step}/{request.row_id}/{sample}",
            run=self._run,
            step=request.step,
            row_id=request.row_id,
            response="\n\n".join([request.response, *request.state.later]),
            format=parts.format,
            accuracy=parts.accuracy,
            step_reward=parts.step,
            seconds=time.perf_counter() - start,
            **graded,
        )
        self._store(row, request.dev)
        return row

    def step(self, number: int) -> list[Rollout]:
        """The rollouts of a recent step, in the order in which they were rewarded."""
        return list(self._steps.get(number, ()))

    def evaluation(self, step: int) -> list[Rollout]:
        """The answers to rows that are not trained on, after a recent step."""
        return list(self._evaluations.get(step, ()))

    def recent_rows(self, steps: int) -> list[RolloutRow]:
        """The rows of the newest steps."""
        newest = sorted(self._steps)[-steps:]
        return [rollout.row for number in newest for rollout in self._steps[number]]

    def _store(self, row: RolloutRow, dev: bool) -> None:
        rollout = Rollout(attempt=self._attempt, row=row, dev=dev)
        self._journal.append(rollout.model_dump(mode="json"))
        steps = self._evaluations if dev else self._steps
        steps.setdefault(row.step, []).append(rollout)
        for old in sorted(steps)[:-_STEPS_IN_MEMORY]:
            del steps[old]


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
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from inference.http.auth import AuthMiddleware, Keys
    from inference.http.body_reader import BodyReader
    from inference.http.errors import install_error_handlers
    from inference.http.server import HTTPServer, listening_socket

    async def reward(request: Request) -> Response:
        reward_request, _ = await bodies.read_json(request, RewardRequest)
        row = await service.reward(reward_request)
        return JSONResponse(row.model_dump(include=_RESPONSE_FIELDS))

    async def turn(request: Request) -> Response:
        reward_request, _ = await bodies.read_json(request, RewardRequest)
        return JSONResponse((await service.next_turn(reward_request)).model_dump())

    bodies = BodyReader(_MAX_BODIES * _MAX_BYTES, _READ_SECONDS)
    token = secrets.token_urlsafe(32)
    routes = {"/reward": reward, "/turn": turn}
    app = Starlette(routes=[Route(path, to, methods=["POST"]) for path, to in routes.items()])
    app.add_middleware(AuthMiddleware, keys=Keys([token]), max_bytes=_MAX_BYTES)
    install_error_handlers(app)
    server = HTTPServer(app, _IDLE_SECONDS, _GRACE_SECONDS, handle_signals=False)
    with listening_socket(host, 0) as listener:
        port = listener.getsockname()[1]
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield RewardAddress(f"http://{host}:{port}", token)
        finally:
            server.should_exit = True
            await serving


@contextmanager
def serve_rewards_in_thread(
    service: RewardService, host: str = LOOPBACK
) -> Iterator[RewardAddress]:
    """`serve_rewards` in a separate thread, for a caller that waits for a child process."""
    from anyio.from_thread import start_blocking_portal

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serve_rewards(service, host)) as address,
    ):
        yield address
