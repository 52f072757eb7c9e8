"""Queues requests, runs them and stores their events; finds them again when they have ended."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from weakref import WeakValueDictionary

from schemas import FoundryError
from warehouse import Home, ImageStore

from ..engine.retry import summarize_error
from ..events import TrajectoryFailed
from ..generation.agent_resolver import AgentResolver
from ..generation.event_log import LazyImage, RunEvent, RunStarted, RunTerminated, dump_events
from ..generation.requests import GenerationOptions, GenerationRequest
from ..generation.runner import BUG, GenerationRunner
from ..http.admission import AdmissionQueue
from ..http.errors import APIError
from ..loop import check_conditioning
from ..roles import Roles
from .request_parsing import ParsedRequest, RequestEcho
from .response_store import ResponseStore, StoredResponse
from .run import CANCELLED, STOPPED, GenerationRun, deadline_exceeded
from .settings import ServiceSettings

# Called with every event of every request.
Watcher = Callable[[GenerationRun, RunEvent], object]

_POLL_SECONDS = 0.05

_log = logging.getLogger(__name__)


class RequestManager:
    """Requests that wait or run, and those that are stored.

    Args:
        watch: called with every event of every request.
    """

    def __init__(
        self,
        home: Home,
        store: ResponseStore,
        runner: GenerationRunner,
        resolver: AgentResolver,
        settings: ServiceSettings,
        watch: Watcher,
    ) -> None:
        self._home, self._store, self._runner, self._resolver = home, store, runner, resolver
        self._deadline, self._watch = settings.deadline_seconds, watch
        self.queue = AdmissionQueue(settings.running, settings.waiting, settings.per_key)
        self._runs: dict[str, GenerationRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._key_locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def recover(self) -> int:
        """Mark the requests of a killed service as interrupted; how many there were."""
        interrupted = self._store.unsettled()
        for stored in interrupted:
            request = _interrupted_request(stored, self._home.images)
            started_at = datetime.fromtimestamp(stored.created_at, UTC)
            self._runner.record_interrupted(request, started_at)
            self._store.settle(stored.id, STOPPED.status, dump_events([STOPPED]), resumable=True)
        return len(interrupted)

    async def open(
        self, parsed: ParsedRequest, owner: str, key: str | None, body_hash: str
    ) -> GenerationRun:
        """Start a request, or return the one that was sent earlier under the same key.

        Args:
            key: the client's idempotency key.
            body_hash: of the request's body.

        Raises:
            APIError: the queue is full, or the key belongs to another request.
        """
        if key is None:
            return await self._start(parsed, owner, None, body_hash)
        async with self._key_locks.setdefault((owner, key), asyncio.Lock()):
            return await self._open_keyed(parsed.with_key(key), owner, key, body_hash)

    async def find(self, response_id: str, owner: str) -> GenerationRun | None:
        """A request of an owner, whether it has ended or not.

        Raises:
            StorageError: the store cannot be read.
        """
        if run := self._running(response_id, owner):
            return run
        stored = await asyncio.to_thread(self._store.get, response_id, owner)
        if run := self._running(response_id, owner):  # it has been resumed meanwhile
            return run
        return GenerationRun.restore(stored, self._home.images) if stored else None

    async def cancel(self, response_id: str, owner: str) -> None:
        """End a request if it waits or runs, and return when its work has stopped."""
        if run := self._running(response_id, owner):
            run.cancel(CANCELLED)
            await run.settled.wait()

    async def delete(self, response_id: str, owner: str) -> bool:
        """Cancel a request and delete its content; False: the owner has no such request.

        Raises:
            StorageError: the store or the lake cannot be written.
        """
        await self.cancel(response_id, owner)
        stored = await asyncio.to_thread(self._store.get, response_id, owner)
        if stored is None:
            return False
        await self._runner.erase(stored.request["generation_id"])
        await self._runner.flush()
        return await asyncio.to_thread(self._store.delete, response_id, owner)

    async def close(self, grace_seconds: float, hurry: Callable[[], bool]) -> None:
        """Reject new requests, wait for the running ones, and interrupt those that are too slow.

        Args:
            hurry: whether to stop waiting; asked again and again.
        """
        self.queue.closed = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_seconds
        while self._runs and loop.time() < deadline and not hurry():
            await asyncio.sleep(_POLL_SECONDS)
        remaining = list(self._runs.values())
        for run in remaining:
            run.cancel(STOPPED)
        for run in remaining:
            await run.settled.wait()

    def _running(self, response_id: str, owner: str) -> GenerationRun | None:
        run = self._runs.get(response_id)
        return run if run and run.owner == owner else None

    async def _open_keyed(
        self, parsed: ParsedRequest, owner: str, key: str, body_hash: str
    ) -> GenerationRun:
        running = next((r for r in self._runs.values() if (r.owner, r.key) == (owner, key)), None)
        if running and running.ending is None and running.termination is None:
            _check_same_body(running.body_hash, body_hash)
            return running
        if running:
            await running.settled.wait()
        stored = await asyncio.to_thread(self._store.by_key, owner, key)
        if stored is None:
            return await self._start(parsed, owner, key, body_hash)
        _check_same_body(stored.body_hash, body_hash)
        if not stored.resumable:
            return GenerationRun.restore(stored, self._home.images)
        resumed = parsed.resume(RequestEcho(**stored.request))
        return await self._start(resumed, owner, key, body_hash)

    async def _start(
        self, parsed: ParsedRequest, owner: str, key: str | None, body_hash: str
    ) -> GenerationRun:
        run = GenerationRun(parsed.echo, owner, parsed.background, key, body_hash)
        admission = ExitStack()
        admission.enter_context(self.queue.admit(owner))
        self._runs[run.id] = run
        try:
            await asyncio.to_thread(self._store.begin, _stored_response(run))
        except BaseException:
            self._remove(run, admission)
            raise
        task = asyncio.create_task(self._work(run, parsed, admission))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    async def _work(self, run: GenerationRun, parsed: ParsedRequest, admission: ExitStack) -> None:
        """From the queue to the store."""
        try:
            run.attach_task()
            await self._wait_and_generate(run, parsed.generation)
        except asyncio.CancelledError:
            self._note(run, run.termination or STOPPED)
        finally:
            await _finish_despite_cancellation(partial(self._settle, run, parsed.store))
            self._remove(run, admission)

    async def _wait_and_generate(self, run: GenerationRun, request: GenerationRequest) -> None:
        try:
            async with asyncio.timeout(self._deadline), self.queue.slot():
                if roles := await self._resolve_roles(run, request):
                    await self._generate(run, request, roles)
        except TimeoutError:
            self._note(run, deadline_exceeded(self._deadline))
        except FoundryError as error:
            self._note(run, TrajectoryFailed(summarize_error(error), refused=False))
        except Exception:
            _log.exception("unexpected error in request %s", run.id)
            self._note(run, BUG)

    async def _resolve_roles(self, run: GenerationRun, request: GenerationRequest) -> Roles | None:
        """The roles; None: the request asks for something that is not available here."""
        try:
            roles = await self._resolver.resolve(request.critic)
            check_conditioning(request.options, roles.generator)
        except FoundryError as error:
            if request.critic is None and request.options.conditioning == "last":
                raise
            self._note(run, TrajectoryFailed(summarize_error(error), refused=True))
            return None
        return roles

    async def _generate(self, run: GenerationRun, request: GenerationRequest, roles: Roles) -> None:
        self._note(run, RunStarted(roles.names))
        async with aclosing(self._runner.run(request, roles)) as events:
            async for event in events:
                self._note(run, event)

    def _note(self, run: GenerationRun, event: RunEvent) -> None:
        if run.ending is None:
            run.note(event)
            self._watch(run, event)

    async def _settle(self, run: GenerationRun, store: bool) -> None:
        """Store the response, or delete what must not be stored."""
        try:
            if store or _is_resumable(run):
                await asyncio.to_thread(self._store_events, run)
            else:
                await asyncio.to_thread(self._store.delete, run.id, run.owner)
                await self._runner.erase(run.request.generation_id)
        except FoundryError as error:
            _log.error("response %s could not be stored: %s", run.id, error)

    def _store_events(self, run: GenerationRun) -> None:
        status, log = run.build_response().status, dump_events(run.events)
        self._store.settle(run.id, status, log, _is_resumable(run))

    def _remove(self, run: GenerationRun, admission: ExitStack) -> None:
        admission.close()
        self._runs.pop(run.id, None)
        run.settled.set()


def _is_resumable(run: GenerationRun) -> bool:
    """Whether another run may get further."""
    match run.ending:
        case RunTerminated(resumable=resumable):
            return resumable
        case TrajectoryFailed(refused=refused):
            return not refused
    return False


def _interrupted_request(stored: StoredResponse, images: ImageStore) -> GenerationRequest:
    request = RequestEcho(**stored.request)
    return GenerationRequest(
        request.text,
        tuple(LazyImage(images, sha256) for sha256 in request.input_images),
        GenerationOptions.model_validate(request.options),
        channel="service",
        generation_id=request.generation_id,
        key=stored.key,
    )


def _stored_response(run: GenerationRun) -> StoredResponse:
    """The row of a request that has not ended."""
    return StoredResponse(
        run.id,
        run.owner,
        run.request.text,
        "queued",
        asdict(run.request),
        created_at=run.request.fields["created_at"],
        key=run.key,
        body_hash=run.body_hash,
    )


def _check_same_body(earlier: str | None, body_hash: str) -> None:
    if earlier != body_hash:
        raise APIError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "this Idempotency-Key belongs to another request; use a new one",
            "idempotency_key_reused",
        )


async def _finish_despite_cancellation(work: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(work())
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
