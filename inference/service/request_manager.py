"""Queues requests, runs them and stores their events; finds them again when they have ended."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import replace
from http import HTTPStatus
from tempfile import TemporaryFile
from weakref import WeakValueDictionary

from schemas import FoundryError, StorageError
from warehouse import Home
from warehouse.storage import storage_errors

from ..calls.retry import summarize_error
from ..events import RunEvent, RunStarted, RunTerminated, TrajectoryFailed, dump_events
from ..generation.agent_resolver import AgentResolver
from ..generation.runner import BUG, GenerationRunner
from ..http.admission import AdmissionQueue
from ..http.errors import APIError, unavailable
from ..loop import check_conditioning
from .monitoring import ServiceMetrics, log_generation
from .response_builder import QueueModel, ResponseBuilder
from .response_store import ResponseStore
from .run import CANCELLED, STOPPED, GenerationRun
from .settings import ServiceSettings

_POLL_SECONDS = 0.05
_PROBE_BYTES = 4096
_RETENTION_SECONDS = 24 * 3600

_log = logging.getLogger(__name__)


class RequestManager:
    """Requests of a home that wait or run, and those that are stored.

    Raises (all methods):
        StorageError: the store or the lake cannot be read or written.
    """

    def __init__(
        self,
        home: Home,
        runner: GenerationRunner,
        resolver: AgentResolver,
        settings: ServiceSettings,
    ) -> None:
        self.home, self.resolver, self.settings, self._runner = home, resolver, settings, runner
        self.store, self.metrics = ResponseStore(home), ServiceMetrics()
        self.queue = AdmissionQueue(settings.running, settings.waiting, settings.per_key)
        self._runs: dict[str, GenerationRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._key_locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def check_storage(self) -> None:
        """Check that requests and their rows can be written; raises StorageError."""
        if problem := self._runner.problem:
            raise StorageError(problem)
        folder = self.home.local / "service"
        with storage_errors("written", folder), TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE_BYTES))
            probe.flush()

    def recover(self) -> int:
        """Mark the requests of a killed service as interrupted; how many there were."""
        return self.store.settle_unfinished(STOPPED.status, dump_events([STOPPED]))

    async def open(self, run: GenerationRun) -> GenerationRun:
        """Start a request, or return the earlier one with its key.

        Raises:
            APIError: the queue is full, or the key belongs to another request.
        """
        key = run.request.key
        if key is None:
            return await self._start(run)
        async with self._key_locks.setdefault((run.owner, key), asyncio.Lock()):
            return await self._open_keyed(run, key)

    async def find(self, response_id: str, owner: str) -> GenerationRun | None:
        """A request of an owner, whether it has ended or not; if so, it is stored."""
        run = self._running(response_id, owner)
        if run is None:
            stored = await asyncio.to_thread(self.store.get, response_id, owner)
            run = self._running(response_id, owner)  # it has been resumed meanwhile
            if run is None:
                return stored
        if run.ending:
            await run.settled.wait()
        return run

    def queue_place(self, run: GenerationRun) -> QueueModel | None:
        """Where a request waits; None: it does not wait for others."""
        if not run.waits:
            return None
        position = [each for each in self._runs.values() if each.waits].index(run) + 1
        seconds = self.queue.expected_seconds(position)
        expected = None if seconds is None else round(seconds, 1)
        return QueueModel(position=position, expected_seconds=expected)

    async def cancel(self, response_id: str, owner: str) -> None:
        """End a request if it waits or runs; returns when its work has stopped."""
        if run := self._running(response_id, owner):
            run.cancel(CANCELLED)
            await run.settled.wait()

    async def delete(self, response_id: str, owner: str) -> bool:
        """Cancel a request and delete its content; False: the owner has no such request."""
        await self.cancel(response_id, owner)
        stored = await asyncio.to_thread(self.store.get, response_id, owner)
        if stored is None:
            return False
        await self._delete([stored])
        return True

    async def apply_retention(self) -> int:
        """Delete the responses that `service.retention` does not keep; how many there were."""
        retention = self.settings.retention
        expired = await asyncio.to_thread(self.store.expired, retention)
        await self._delete([stored for stored in expired if stored.id not in self._runs])
        return len(expired)

    async def apply_retention_daily(self) -> None:
        while True:
            try:
                if deleted := await self.apply_retention():
                    _log.info("%d responses were deleted by service.retention", deleted)
            except StorageError as error:
                _log.error("service.retention could not be applied: %s", error)
            await asyncio.sleep(_RETENTION_SECONDS)

    async def close(self, grace_seconds: float, hurry: Callable[[], bool]) -> None:
        """Reject new requests; interrupt the others after `grace_seconds`, or on `hurry()`."""
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

    async def _delete(self, responses: Sequence[GenerationRun]) -> None:
        for stored in responses:
            await self._runner.erase(stored.request.generation_id)
        if responses:
            await self._runner.flush()
        for stored in responses:
            await asyncio.to_thread(self.store.delete, stored.id, stored.owner)

    def _running(self, response_id: str, owner: str) -> GenerationRun | None:
        run = self._runs.get(response_id)
        return run if run and run.owner == owner else None

    async def _open_keyed(self, new: GenerationRun, key: str) -> GenerationRun:
        owned = (run for run in self._runs.values() if run.owner == new.owner)
        run = next((run for run in owned if run.request.key == key), None)
        if run and (run.ending or run.termination):
            await run.settled.wait()
            run = None
        earlier = run or await asyncio.to_thread(self.store.by_key, new.owner, key)
        if earlier is None:
            return await self._start(new)
        if earlier.body_hash != new.body_hash:
            message = "this Idempotency-Key belongs to another request; use a new one"
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            raise APIError(status, message, "idempotency_key_reused")
        if run or not earlier.is_resumable:
            return earlier
        generation_id = earlier.request.generation_id
        new.request = replace(new.request, generation_id=generation_id, resumes=True)
        new.fields["created_at"] = earlier.fields["created_at"]
        return await self._start(new)

    async def _start(self, run: GenerationRun) -> GenerationRun:
        with ExitStack() as stack:
            stack.callback(run.settled.set)
            stack.enter_context(self.queue.admit(run.owner))
            self._runs[run.id] = run
            stack.callback(self._runs.pop, run.id)
            stack.callback(self._runner.end_waiting, run.request, None)  # if it is not stored
            await self._store_begun(run)
            registration = stack.pop_all()
        task = asyncio.create_task(self._work(run, registration))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    async def _store_begun(self, run: GenerationRun) -> None:
        try:
            self._runner.accept(run.request)
            await asyncio.to_thread(self.store.begin, run)
        except StorageError as error:
            _log.error("requests cannot be stored: %s", error)
            message = "requests cannot be stored at the moment; the service's log says why"
            raise unavailable(message, "storage_unavailable") from None

    async def _work(self, run: GenerationRun, registration: ExitStack) -> None:
        """From the queue to the store."""
        with registration:
            try:
                run.attach_task()
                await self._wait_and_generate(run)
            except asyncio.CancelledError:
                self._note(run, run.termination or STOPPED)
            finally:
                run.waits = False
                settling = asyncio.create_task(self._settle(run))
                while not settling.done():  # it is not cancelled with this task
                    with suppress(asyncio.CancelledError):
                        await asyncio.shield(settling)

    async def _wait_and_generate(self, run: GenerationRun) -> None:
        seconds = self.settings.deadline_seconds
        try:
            async with asyncio.timeout(seconds), self.queue.slot():
                run.waits = False
                await self._generate(run)
        except TimeoutError:
            reason = f"it was not finished in {seconds:g} seconds"
            self._note(run, RunTerminated("interrupted", reason))
        except FoundryError as error:
            if isinstance(error, StorageError):
                _log.error("request %s cannot be stored: %s", run.id, error)
            self._note(run, TrajectoryFailed(summarize_error(error), refused=False))
        except Exception:
            _log.exception("unexpected error in request %s", run.id)
            self._note(run, BUG)

    async def _generate(self, run: GenerationRun) -> None:
        request = run.request
        try:
            roles = await self.resolver.resolve(request.agents)
            await asyncio.to_thread(check_conditioning, request.options, roles.generator)
        except FoundryError as error:
            if not any(request.agents) and request.options.conditioning == "last":
                raise
            # The request asks for something that is not available here.
            return self._note(run, TrajectoryFailed(summarize_error(error), refused=True))
        self._note(run, RunStarted(roles.names))
        async with aclosing(self._runner.run(request, roles, run.check_plan)) as events:
            async for event in events:
                self._note(run, event)

    def _note(self, run: GenerationRun, event: RunEvent) -> None:
        if run.ending is None:
            run.note(event)
            self.metrics.record(run, event)
            log_generation(run, event, self.settings.logs.prompts)

    async def _settle(self, run: GenerationRun) -> None:
        """Store the response, or delete what must not be stored."""
        self._runner.end_waiting(run.request, run.ending)
        try:
            if run.is_resumable or run.fields.get("store", True):
                await asyncio.to_thread(self._store_events, run)
            else:
                await asyncio.to_thread(self.store.delete, run.id, run.owner)
                await self._runner.erase(run.request.generation_id)
        except FoundryError as error:
            _log.error("response %s could not be stored: %s", run.id, error)

    def _store_events(self, run: GenerationRun) -> None:
        status = ResponseBuilder.replay(run).status
        self.store.settle(run.id, status, dump_events(run.events), run.is_resumable)
