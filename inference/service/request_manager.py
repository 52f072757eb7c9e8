"""Takes wishes in, has them told, and keeps what came of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from weakref import WeakValueDictionary

from schemas import FoundryError
from warehouse import Home

from ..engine.retry import summarize_error
from ..events import TrajectoryFailed
from ..generation.agent_resolver import AgentResolver, ResolvedRoles
from ..generation.generation_record import stored_events
from ..generation.recovery import InterruptedRequest
from ..generation.requests import GenerationOptions
from ..generation.runner import GenerationRunner
from ..http.errors import APIError
from ..loop import check_conditioning
from .admission import AdmissionQueue
from .lifecycle import (
    CANCELLED,
    STOPPED,
    RunEvent,
    RunStarted,
    RunTerminated,
    deadline_exceeded,
    is_resumable,
)
from .request_parsing import ParsedRequest
from .response_store import ResponseStore, StoredResponse
from .responses.response_builder import RequestEcho, ResponseBuilder, as_json
from .run import GenerationRun
from .settings import ServiceSettings

Json = dict[str, Any]
# Hears of what happens: a run, and its next event.
Watcher = Callable[[GenerationRun, RunEvent], object]

_LOOK_SECONDS = 0.05

_log = logging.getLogger(__name__)


class RequestManager:
    """Requests under way, and those that are over.

    Args:
        watch: hears every event of every request.
    """

    def __init__(
        self,
        home: Home,
        library: ResponseStore,
        teller: GenerationRunner,
        casting: AgentResolver,
        settings: ServiceSettings,
        watch: Watcher,
    ) -> None:
        self._home, self._library, self._teller, self._casting = home, library, teller, casting
        self._deadline, self._watch = settings.deadline_seconds, watch
        self.queue = AdmissionQueue(settings)
        self._runs: dict[str, GenerationRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._keys: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def recover(self) -> int:
        """Settle what a killed service left unfinished; how many requests that was."""
        left = self._library.unsettled()
        for kept in left:
            asked = RequestEcho.of(kept.response)
            self._teller.keep_interrupted(_interrupted(asked, kept))
            answer = ResponseBuilder(asked)
            answer.note(STOPPED)
            self._library.settle(kept.id, as_json(answer), resumable=True)
        return len(left)

    async def open(
        self, wish: ParsedRequest, owner: str, key: str | None, body: str
    ) -> "GenerationRun | StoredResponse":
        """Begin to tell a wish; or what became of the same one, where it came under a key before.

        Args:
            key: the requester's own name for it (idempotency key).
            body: hash of what was sent.

        Raises:
            Refusal: there is no place for it, or the key stands for another request.
        """
        if key is None:
            return await self._begin(wish, owner, None, body)
        async with self._keys.setdefault((owner, key), asyncio.Lock()):
            return await self._joined(wish, owner, key, body)

    def run(self, response_id: str, owner: str) -> GenerationRun | None:
        """A request under way."""
        run = self._runs.get(response_id)
        return run if run and run.owner == owner else None

    def kept(self, response_id: str, owner: str) -> StoredResponse | None:
        """A request that is over."""
        return self._library.get(response_id, owner)

    def response(self, response_id: str, owner: str) -> Json | None:
        """The Response of a request, over or not, without the bytes of pictures."""
        if run := self.run(response_id, owner):
            return as_json(run.answer())
        kept = self.kept(response_id, owner)
        return kept.response if kept else None

    def retold(self, kept: StoredResponse) -> Iterator[RunEvent]:
        """The events of a request that is over, as they came.

        Raises:
            BadImageError: one of its pictures is not there any more.
        """
        record = kept.response["interleave"]
        if record["versions"]:
            yield RunStarted(record["versions"])
        for event in stored_events(kept.response, self._home):
            if isinstance(event, TrajectoryFailed) and record["status"] in (
                "cancelled",
                "interrupted",
            ):
                yield RunTerminated(record["status"], event.reason, resumable=False)
            else:
                yield event

    async def cancel(self, response_id: str, owner: str) -> bool:
        """End a request, and wait until its work has stopped; False: it is not under way."""
        run = self.run(response_id, owner)
        if run is None:
            return False
        run.cancel(CANCELLED)
        await run.settled.wait()
        return True

    async def delete(self, response_id: str, owner: str) -> bool:
        """Forget a request, which is ended first; False: there is none."""
        await self.cancel(response_id, owner)
        kept = await asyncio.to_thread(self._library.get, response_id, owner)
        if kept is None:
            return False
        await self._teller.erase(RequestEcho.of(kept.response).generation_id)
        await self._teller.flush()
        return await asyncio.to_thread(self._library.delete, response_id, owner)

    async def close(self, grace_seconds: float, hurry: Callable[[], bool]) -> None:
        """Take nothing more; let what is under way finish in time, else hand it back.

        Args:
            hurry: whether to stop waiting.
        """
        self.queue.closed = True
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_seconds
        while self._runs and loop.time() < until and not hurry():
            await asyncio.sleep(_LOOK_SECONDS)
        left = list(self._runs.values())
        for run in left:
            run.cancel(STOPPED)
        for run in left:
            await run.settled.wait()

    async def _joined(
        self, wish: ParsedRequest, owner: str, key: str, body: str
    ) -> "GenerationRun | StoredResponse":
        running = next((r for r in self._runs.values() if (r.owner, r.key) == (owner, key)), None)
        if running and running.ending is None and running.cut is None:
            _check_same(running.body, body)
            return running
        if running:
            await running.settled.wait()
        kept = await asyncio.to_thread(self._library.keyed, owner, key)
        if kept is None:
            return await self._begin(wish, owner, key, body)
        _check_same(kept.body, body)
        if not kept.resumable:
            return kept
        record = kept.response["interleave"]
        again = wish.named(record["generation_id"], kept.response["created_at"])
        return await self._begin(again, owner, key, body)

    async def _begin(
        self, wish: ParsedRequest, owner: str, key: str | None, body: str
    ) -> GenerationRun:
        run = GenerationRun(wish.under(key), owner, key, body)
        place = ExitStack()
        place.enter_context(self.queue.place(owner))
        self._runs[run.id] = run
        try:
            await asyncio.to_thread(self._library.begin, _stored(run))
        except BaseException:
            self._forget(run, place)
            raise
        task = asyncio.create_task(self._work(run, place))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    async def _work(self, run: GenerationRun, place: ExitStack) -> None:
        """From its place in the queue to its place in the library."""
        try:
            run.begin()
            await self._tell(run)
        except asyncio.CancelledError:
            self._note(run, run.cut or STOPPED)
        finally:
            await _whatever_comes(partial(self._settle, run))
            self._forget(run, place)

    async def _tell(self, run: GenerationRun) -> None:
        try:
            async with asyncio.timeout(self._deadline), self.queue.turn():
                if cast := await self._cast(run):
                    await self._told(run, cast)
        except TimeoutError:
            self._note(run, deadline_exceeded(self._deadline))
        except FoundryError as error:
            self._note(run, TrajectoryFailed(summarize_error(error), refused=False))
        except Exception:
            _log.exception("request %s met a bug", run.id)
            self._note(
                run, TrajectoryFailed("something went wrong here; the log says what", refused=False)
            )

    async def _cast(self, run: GenerationRun) -> ResolvedRoles | None:
        """The players; None: the request asks for what is not to be had."""
        story = run.wish.story
        try:
            cast = await self._casting.cast(story.critic)
            check_conditioning(story.rules, cast.roles.generator)
        except FoundryError as error:
            if story.critic is None and story.rules.conditioning == "last":
                raise
            self._note(run, TrajectoryFailed(summarize_error(error), refused=True))
            return None
        return cast

    async def _told(self, run: GenerationRun, cast: ResolvedRoles) -> None:
        self._note(run, RunStarted(cast.names))
        async with aclosing(self._teller.tell(run.wish.story, cast)) as events:
            async for event in events:
                self._note(run, event)

    def _note(self, run: GenerationRun, event: RunEvent) -> None:
        if run.ending is None:
            run.note(event)
            self._watch(run, event)

    async def _settle(self, run: GenerationRun) -> None:
        try:
            ending = run.ending
            resumable = ending is not None and is_resumable(ending)
            if run.wish.store or resumable:
                response = as_json(run.answer())
                await asyncio.to_thread(self._library.settle, run.id, response, resumable)
            else:
                await asyncio.to_thread(self._library.delete, run.id, run.owner)
                await self._teller.erase(run.wish.story.generation_id)
        except FoundryError as error:
            _log.error("response %s could not be kept: %s", run.id, error)

    def _forget(self, run: GenerationRun, place: ExitStack) -> None:
        place.close()
        self._runs.pop(run.id, None)
        run.settled.set()


def _interrupted(asked: RequestEcho, kept: StoredResponse) -> InterruptedRequest:
    return InterruptedRequest(
        asked.generation_id,
        asked.text,
        asked.given,
        GenerationOptions.model_validate(asked.rules),
        "service",
        kept.key,
        datetime.fromtimestamp(kept.created_at, UTC),
    )


def _stored(run: GenerationRun) -> StoredResponse:
    """As it is kept while it runs."""
    response = as_json(run.answer())
    return StoredResponse(
        run.id,
        run.owner,
        run.wish.story.text,
        response["status"],
        response,
        response["created_at"],
        run.key,
        run.body,
    )


def _check_same(before: str | None, body: str) -> None:
    if before != body:
        raise APIError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "this Idempotency-Key stands for another request; use a new one",
            "idempotency_key_reused",
        )


async def _whatever_comes(work: Callable[[], Awaitable[None]]) -> None:
    """Finish even when cancelled meanwhile."""
    task = asyncio.ensure_future(work())
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
