"""Requests through a provider's batch API, at about half the price: they may take a day.

Requests are gathered and submitted together. A batch's name and requests are stored before it is
submitted, the provider's id of it afterwards. A run that is started again makes the same requests,
finds their batch (by its name at the provider, if the id was not stored yet) and waits for it:
nothing is paid twice. A batch belongs to the key that submitted it, so all go to the provider's
first endpoint.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4
from weakref import WeakKeyDictionary

from warehouse.sqlite_file import SqliteFile

from ...calls.retry import pause_timeout
from ...roles import RetryableError
from ...servers.instance import ServerInstance
from .chat import Adapter, BatchResult, CompletionRequest
from .endpoints import Endpoints
from .settings import EndpointSettings
from .structured import CompletionResult

_GetId = Callable[[], Awaitable[str]]

_CREATE_TABLES = (
    "CREATE TABLE batches (name TEXT PRIMARY KEY, id TEXT)",
    "CREATE TABLE questions (digest TEXT PRIMARY KEY, name TEXT NOT NULL)",
)


class BatchStore:
    """Submitted batches and their requests, in an SQLite file."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, _CREATE_TABLES)

    def add(self, name: str, digests: Sequence[str]) -> None:
        """Store a batch that is about to be submitted."""
        with self._file.transaction() as connection:
            connection.execute("INSERT INTO batches VALUES (?, NULL)", (name,))
            rows = [(digest, name) for digest in digests]
            connection.executemany("INSERT OR REPLACE INTO questions VALUES (?, ?)", rows)

    def set_id(self, name: str, batch_id: str) -> None:
        """Store the provider's id of a batch."""
        with self._file.transaction() as connection:
            connection.execute("UPDATE batches SET id = ? WHERE name = ?", (batch_id, name))

    def batch_of(self, digest: str) -> tuple[str, str | None] | None:
        """Name and id of the batch that a request is in."""
        with self._file.transaction() as connection:
            row: tuple[str, str | None] | None = connection.execute(
                "SELECT name, id FROM batches JOIN questions USING (name) WHERE digest = ?",
                (digest,),
            ).fetchone()
        return row

    def remove(self, digest: str) -> None:
        """Remove a request that got no answer; made again, it goes into another batch."""
        with self._file.transaction() as connection:
            connection.execute("DELETE FROM questions WHERE digest = ?", (digest,))


@dataclass
class _PendingRequests:
    """Requests of one event loop: those awaited, those not submitted yet, and running batches.

    `digests`: a running batch's name -> those of its requests that are awaited.
    """

    futures: dict[str, asyncio.Future[CompletionResult]] = field(default_factory=dict)
    unsubmitted: dict[str, CompletionRequest] = field(default_factory=dict)
    digests: dict[str, list[str]] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class BatchClient:
    """Client of a provider's batch API. `gather_seconds, poll_seconds`: see `ProviderSettings`."""

    def __init__(
        self,
        adapter: Adapter,
        endpoint: EndpointSettings,
        store: BatchStore,
        gather_seconds: float,
        poll_seconds: float,
        servers: Mapping[str, ServerInstance],
    ) -> None:
        self._adapter, self.store = adapter, store
        self._gather_seconds, self._poll_seconds = gather_seconds, poll_seconds
        self._endpoints = Endpoints([endpoint], adapter.connect, adapter.close, servers)
        self._pending: WeakKeyDictionary[asyncio.AbstractEventLoop, _PendingRequests]
        self._pending = WeakKeyDictionary()

    async def complete(self, request: CompletionRequest) -> CompletionResult:
        """The answer, whenever it comes; the wait does not count as the call's time.

        Raises `RetryableError` where the batch failed, expired, or has no answer to this request;
        `UnusableAnswerError` and `BackendError` as for any call.
        """
        loop = asyncio.get_running_loop()
        pending = self._pending.setdefault(loop, _PendingRequests())
        digest = request.digest
        if digest not in pending.futures:
            pending.futures[digest] = loop.create_future()
            self._enqueue(pending, digest, request)
        async with pause_timeout():
            return await asyncio.shield(pending.futures[digest])

    def _enqueue(self, pending: _PendingRequests, digest: str, request: CompletionRequest) -> None:
        if batch := self.store.batch_of(digest):
            name, batch_id = batch
            if name in pending.digests:
                pending.digests[name].append(digest)
            else:
                self._start(pending, name, [digest], partial(self._find, name, batch_id))
            return
        pending.unsubmitted[digest] = request
        if pending.timer:
            pending.timer.cancel()
        loop = asyncio.get_running_loop()
        pending.timer = loop.call_later(self._gather_seconds, self._submit_all, pending)

    def _submit_all(self, pending: _PendingRequests) -> None:
        unsubmitted, pending.unsubmitted = pending.unsubmitted, {}
        for requests in _split_into_batches(unsubmitted, self._adapter.max_batch_bytes):
            name, digests = f"interleave-{uuid4().hex}", list(requests)
            self.store.add(name, digests)
            submit = partial(self._adapter.submit, name=name, requests=requests)
            self._start(pending, name, digests, partial(self._endpoints.call, submit))

    async def _find(self, name: str, batch_id: str | None) -> str:
        """The id of a batch of an earlier run."""
        batch_id = batch_id or await self._endpoints.call(partial(self._adapter.find, name=name))
        if batch_id is None:
            raise RetryableError("the run was killed before its batch was submitted")
        return batch_id

    def _start(
        self, pending: _PendingRequests, name: str, digests: list[str], get_id: _GetId
    ) -> None:
        pending.digests[name] = digests
        # Not in the context of the request that happened to be the last: its timeout is paused.
        run = self._run(pending, name, get_id)
        pending.tasks[name] = asyncio.create_task(run, context=Context())

    async def _run(self, pending: _PendingRequests, name: str, get_id: _GetId) -> None:
        """Resolve the awaited requests of a batch; later ones look it up again."""
        results: Mapping[str, BatchResult] = {}
        missing: Exception = RetryableError("the provider's batch has no answer to it")
        try:
            batch_id = await get_id()
            self.store.set_id(name, batch_id)
            results = await self._wait_for_results(batch_id)
        except Exception as error:
            missing = error
        del pending.tasks[name]
        for digest in pending.digests.pop(name):
            future, result = pending.futures.pop(digest), results.get(digest, missing)
            if isinstance(result, Exception):
                self.store.remove(digest)
                future.set_exception(result)
            else:
                future.set_result(result)

    async def _wait_for_results(self, batch_id: str) -> Mapping[str, BatchResult]:
        """Poll until the batch is done, also through outages of the provider."""
        while True:
            with suppress(RetryableError):
                poll = partial(self._adapter.results, batch_id=batch_id)
                if (results := await self._endpoints.call(poll)) is not None:
                    return results
            await asyncio.sleep(self._poll_seconds)


def _split_into_batches(
    requests: dict[str, CompletionRequest], max_bytes: int
) -> list[dict[str, CompletionRequest]]:
    """Batches of requests of one model, each no larger than the provider accepts."""
    batches: list[dict[str, CompletionRequest]] = []
    open_batches: dict[str, tuple[dict[str, CompletionRequest], int]] = {}
    for digest, request in requests.items():
        batch, size = open_batches.get(request.model, ({}, max_bytes))
        if size + request.size_bytes > max_bytes:
            batch, size = {}, 0
            batches.append(batch)
        batch[digest] = request
        open_batches[request.model] = (batch, size + request.size_bytes)
    return batches
