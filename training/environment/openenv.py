"""Serves episodes over OpenEnv's protocol: a WebSocket `/ws` is a session.

A client sends `{"type": ..., "data": ...}`, with the types reset, step, state and close, and gets
one message for each, of type observation, state or error (`env_server/types.py` of OpenEnv 0.10).
`/health`, `/metadata` and `/schema` are as there. Its `/reset` and `/step` keep no state between
requests, so that no episode can be played by them: they are left out.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, Literal
from uuid import uuid4

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from inference.calls.retry import summarize_error
from inference.http.auth import AuthMiddleware, Keys, load_keys
from inference.http.errors import install_error_handlers
from inference.http.server import HTTPServer, MetricsRegistry, listening_socket, shutdown_signals
from inference.roles import BackendError

from ..rewards.rollouts import RolloutResult
from .episodes import Environment, Outcome, Turn, Turns

KEYS = "INTERLEAVE_ENV_KEYS"
_MESSAGE_BYTES = 2**20
_BODY_BYTES = 2**10  # there is no request with a body
_IDLE_SECONDS = 60.0  # of an HTTP connection
_SESSION_IDLE_SECONDS = 3600  # without a message; then it ends
_GRACE_SECONDS = 1
_SEEDS = 2**31
_log = logging.getLogger(__name__)


class Answer(BaseModel):
    """What the policy answers; verifiers would take a schema of the title `Action` for tools."""

    model_config = ConfigDict(extra="forbid")

    answer: str = Field(
        description="The agent's whole answer: <think>...</think><answer>...</answer>"
    )
    metadata: dict[str, Any] = Field({}, description="Ignored")


class Observation(BaseModel):
    """What the policy is asked next, and what its last answer was worth."""

    prompt: str = Field("", description="The question, with <image> for each image; empty: none")
    images: list[str] = Field([], description="Data URLs")
    seed: int = Field(description="Of the episode")
    row_id: str = Field("", description="Id of the question, as in the training sets")
    status: Literal["scored", "malformed", "masked"] | None = Field(
        None, description="Of the last answer; masked: its reward is unknown; null: after a reset"
    )
    answer_reward: float | None = Field(None, description="GRPO's reward of the last answer")
    format: float | None = Field(None, description="A part of it: whether it can be parsed")
    accuracy: float | None = Field(None, description="A part of it: the verdict, or the plan")
    step_reward: float | None = Field(None, description="A part of it: what the new prompt gains")
    error: str | None = Field(None, description="Why an image or a grade failed")
    success: bool | None = Field(
        None, description="At the end of a trajectory: whether its images are what was asked for"
    )
    drawings: int | None = Field(None, description="Then, too: images that were drawn")
    metadata: dict[str, Any] = Field({}, description="Empty")


class State(BaseModel):
    """The state of a session."""

    episode_id: str | None = Field(None, description="As the client named it, or of our own")
    step_count: int = Field(0, description="Answers in this episode")
    seed: int | None = Field(None, description="Of the episode")


class _ResetData(BaseModel):
    seed: int | None = Field(None, ge=0, lt=_SEEDS)
    episode_id: str | None = Field(None, max_length=255)


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Reset(_Message):
    type: Literal["reset"]
    data: _ResetData = _ResetData()


class _Step(_Message):
    type: Literal["step"]
    data: Answer


class _State(_Message):
    type: Literal["state"]


class _Close(_Message):
    type: Literal["close"]


_MESSAGES: TypeAdapter[_Reset | _Step | _State | _Close] = TypeAdapter(
    Annotated[_Reset | _Step | _State | _Close, Field(discriminator="type")]
)


class _RefusedError(Exception):
    """A message that is answered with an error, after which the session goes on."""

    def __init__(self, code: str, message: str, **more: Any) -> None:
        self.data = {"message": message, "code": code, **more}


class Session:
    """The episodes of one client, one after the other."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._turns: Turns | None = None
        self._turn: Turn | None = None  # None: no episode, or it has ended
        self._state = State()

    async def answer(self, text: str) -> dict[str, Any] | None:
        """The message that answers a client's; None: the client ends the session.

        Raises _RefusedError.
        """
        match _parse(text):
            case _Reset(data=data):
                return {"type": "observation", "data": await self._reset(data)}
            case _Step(data=given):
                return {"type": "observation", "data": await self._step(given.answer)}
            case _State():
                return {"type": "state", "data": self._state.model_dump()}
            case _:
                return None

    async def aclose(self) -> None:
        turns, self._turns, self._turn = self._turns, None, None
        if turns:
            await turns.aclose()

    async def _reset(self, data: _ResetData) -> dict[str, Any]:
        await self.aclose()
        seed = secrets.randbelow(_SEEDS) if data.seed is None else data.seed
        self._turns, self._turn = await self._environment.start(seed)
        self._state = State(episode_id=data.episode_id or uuid4().hex, seed=seed)
        return self._observe({}, None)

    async def _step(self, answer: str) -> dict[str, Any]:
        if self._turn is None or self._turns is None:
            raise _RefusedError("EXECUTION_ERROR", "there is no episode, or it has ended: reset")
        result = await self._turn.grade(answer)
        self._state.step_count += 1
        following, reward = None, result.reward
        with suppress(StopAsyncIteration):
            following = await self._turns.asend(answer)
        self._turn = following if isinstance(following, Turn) else None
        end = {}
        if following is not None:  # of a whole trajectory its outcome counts
            reward = None
        if isinstance(following, Outcome):
            end = {"success": following.success, "drawings": following.drawings}
            reward = None if following.success is None else float(following.success)
        return self._observe(_graded(result) | end, reward)

    def _observe(self, graded: dict[str, Any], reward: float | None) -> dict[str, Any]:
        turn, asked = self._turn, {}
        if turn:
            images = [image.data_url for image in turn.images]
            asked = {"prompt": turn.prompt, "images": images, "row_id": turn.row_id}
        observation = Observation(seed=self._state.seed or 0, **asked, **graded)
        done = turn is None
        return {"observation": observation.model_dump(), "reward": reward, "done": done}


def _graded(result: RolloutResult) -> dict[str, Any]:
    parts = result.parts
    return {
        "status": result.status,
        "answer_reward": result.reward,
        "format": parts.format,
        "accuracy": parts.accuracy,
        "step_reward": parts.step,
        "error": result.error,
    }


def _parse(text: str) -> _Reset | _Step | _State | _Close:
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _RefusedError("INVALID_JSON", f"Invalid JSON: {error}") from None
    try:
        return _MESSAGES.validate_python(content)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        if problems[0]["type"].startswith("union_tag"):
            raise _RefusedError("UNKNOWN_TYPE", "type is reset, step, state or close") from None
        place = ".".join(map(str, problems[0]["loc"][1:]))
        message = f"{place}: {problems[0]['msg']}"
        raise _RefusedError("VALIDATION_ERROR", message, errors=problems) from None


class _Metrics(MetricsRegistry):
    def __init__(self) -> None:
        super().__init__("interleave_env")
        self.sessions = self.gauge("sessions", "Sessions that are open")
        self.messages = self.counter("messages", "Messages of clients, by what answered", ["type"])


def make_app(environment: Environment, sessions: int, keys: Keys) -> Starlette:
    """The server's application. `sessions`: at once; a further one is refused."""
    metrics, open_sessions = _Metrics(), set[Session]()
    metrics.sessions.set_function(lambda: len(open_sessions))

    async def serve_session(websocket: WebSocket) -> None:
        await websocket.accept()
        with suppress(WebSocketDisconnect, TimeoutError):
            if len(open_sessions) >= sessions:
                await _send(websocket, "error", _at_capacity(sessions))
            else:
                session = Session(environment)
                open_sessions.add(session)
                try:
                    await converse(websocket, session)
                finally:
                    open_sessions.discard(session)
                    await session.aclose()
        with suppress(RuntimeError, WebSocketDisconnect):  # it is closed already
            await websocket.close()

    async def converse(websocket: WebSocket, session: Session) -> None:
        while True:
            async with asyncio.timeout(_SESSION_IDLE_SECONDS):
                text = await websocket.receive_text()
            message = await _answer(session, text)
            if message is None:
                return
            metrics.messages.labels(message["type"]).inc()
            await _send(websocket, **message)

    def as_json(content: dict[str, Any]) -> Callable[[Request], Response]:
        return lambda _request: JSONResponse(content)

    models: dict[str, type[BaseModel]] = {
        "action": Answer,
        "observation": Observation,
        "state": State,
    }
    schemas = {name: model.model_json_schema() for name, model in models.items()}
    description = "The planner-critic loop of Interleave Foundry as an environment"
    routes = [
        Route("/health", as_json({"status": "healthy"})),
        Route("/ready", as_json({"ready": True})),
        Route("/metadata", as_json({"name": environment.name, "description": description})),
        Route("/schema", as_json(schemas)),
        Route("/metrics", lambda _request: metrics.exposition()),
        WebSocketRoute("/ws", serve_session),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(AuthMiddleware, keys=keys, max_bytes=_BODY_BYTES, local_only=True)
    install_error_handlers(app)
    return app


def serve(
    environment: Environment, host: str, port: int, sessions: int, report: Callable[[str], object]
) -> None:
    """Serve until Ctrl-C or SIGTERM. `report` gets a line for each change of state.

    Raises BackendError: the port is taken, or no key is set for an address beyond this machine.
    """
    app = make_app(environment, sessions, load_keys(host, KEYS))
    with listening_socket(host, port) as listener, shutdown_signals():
        taken, count = listener.getsockname()[1], len(environment.prompts)
        report(f"{environment.name}: {count} requests; http://{host}:{taken}")
        server = HTTPServer(app, _IDLE_SECONDS, _GRACE_SECONDS, message_bytes=_MESSAGE_BYTES)
        server.run(sockets=[listener])
        report("stopped")


async def _answer(session: Session, text: str) -> dict[str, Any] | None:
    try:
        return await session.answer(text)
    except _RefusedError as error:
        return {"type": "error", "data": error.data}
    except Exception as error:
        if not isinstance(error, BackendError):
            _log.exception("an episode failed")
        await session.aclose()
        data = {"message": summarize_error(error), "code": "EXECUTION_ERROR"}
        return {"type": "error", "data": data}


async def _send(websocket: WebSocket, type: str, data: dict[str, Any]) -> None:
    await websocket.send_text(orjson.dumps({"type": type, "data": data}).decode())


def _at_capacity(sessions: int) -> dict[str, Any]:
    return {
        "message": f"all {sessions} sessions of this server are in use",
        "code": "CAPACITY_REACHED",
        "active_sessions": sessions,
        "max_sessions": sessions,
    }
