"""Requests through a provider's batch API, at about half the price: they may take a day.

Requests are gathered and submitted together. A batch's name and requests are stored before it is
submitted, the provider's id of it afterwards. A run that is started again makes the same requests,
finds their batch (by its name at the provider, if the id was not stored yet) and waits for it:
nothing is paid twice. A batch belongs to the key that submitted it, so all go to the provider's
first endpoint.
"""

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from warehouse.sqlite_file import SqliteFile

from ...engine.pausable_timeout import pause_timeout
from ...roles import RetryableError
from .chat import CompletionRequest, CompletionResult
from .endpoints import Endpoints

Client = TypeVar("Client")
AdapterClient = TypeVar("AdapterClient", contravariant=True)
Batch = TypeVar("Batch")
BatchResult = CompletionResult | Exception

_MAX_SEARCHED = 500

_MIGRATIONS = (
    """
    CREATE TABLE IF NOT EXISTS batches (name TEXT PRIMARY KEY, id TEXT);
    CREATE TABLE IF NOT EXISTS questions (digest TEXT PRIMARY KEY, name TEXT NOT NULL);
    """,
)


class BatchAdapter(Protocol[AdapterClient]):
    """A provider's batch API. Its errors are those of `Adapter`."""

    max_batch_bytes: int

    async def submit(
        self, client: AdapterClient, name: str, requests: Mapping[str, CompletionRequest]
    ) -> str:
        """Submit requests of one model, by digest; the provider's id of the batch."""

    async def find(self, client: AdapterClient, name: str) -> str | None:
        """The id of the batch of a name; None: the provider never received it."""

    async def results(
        self, client: AdapterClient, batch_id: str
    ) -> Mapping[str, BatchResult] | None:
        """Result or error of each request, by digest; None: the batch is not done yet."""


class BatchStore:
    """Submitted batches and their requests, in an SQLite file."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, _MIGRATIONS)

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
    """Requests of one event loop: those awaited, those not submitted yet, and running batches."""

    futures: dict[str, asyncio.Future[CompletionResult]] = field(default_factory=dict)
    unsubmitted: dict[str, CompletionRequest] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class BatchClient(Generic[Client]):
    """Client of a provider's batch API.

    Args:
        gather_seconds: a batch is submitted when no request has come for so long.
        poll_seconds: between two polls of a batch.
    """

    def __init__(
        self,
        adapter: BatchAdapter[Client],
        endpoints: Endpoints[Client],
        store: BatchStore,
        gather_seconds: float,
        poll_seconds: float,
    ) -> None:
        self._adapter, self._endpoints, self._store = adapter, endpoints, store
        self._gather_seconds, self._poll_seconds = gather_seconds, poll_seconds
        self._pending: WeakKeyDictionary[asyncio.AbstractEventLoop, _PendingRequests] = (
            WeakKeyDictionary()
        )

    async def complete(self, request: CompletionRequest) -> CompletionResult:
        """The answer, whenever it comes; the wait does not count as the call's time.

        Raises:
            RetryableError: the batch failed, expired, or has no answer to this request.
            UnusableAnswerError, BackendError: as for any call.
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
        if batch := self._store.batch_of(digest):
            name, batch_id = batch
            if name not in pending.tasks:
                self._start(pending, name, self._resume(pending, name, batch_id))
            return
        pending.unsubmitted[digest] = request
        if pending.timer:
            pending.timer.cancel()
        loop = asyncio.get_running_loop()
        pending.timer = loop.call_later(self._gather_seconds, self._submit_all, pending)

    def _submit_all(self, pending: _PendingRequests) -> None:
        unsubmitted, pending.unsubmitted = pending.unsubmitted, {}
        for requests in _split_into_batches(unsubmitted, self._adapter.max_batch_bytes):
            name = f"interleave-{uuid4().hex}"
            self._store.add(name, list(requests))
            self._start(pending, name, self._submit(pending, name, requests))

    def _start(
        self, pending: _PendingRequests, name: str, work: Coroutine[None, None, None]
    ) -> None:
        pending.tasks[name] = asyncio.get_running_loop().create_task(work)

    async def _submit(
        self, pending: _PendingRequests, name: str, requests: dict[str, CompletionRequest]
    ) -> None:
        try:
            submit = partial(self._adapter.submit, name=name, requests=requests)
            batch_id = await self._endpoints.call(submit)
            self._store.set_id(name, batch_id)
            results = await self._wait_for_results(batch_id)
        except Exception as error:
            results = dict.fromkeys(requests, error)
        self._deliver(pending, name, list(requests), results)

    async def _resume(self, pending: _PendingRequests, name: str, batch_id: str | None) -> None:
        """Wait for a batch of an earlier run."""
        results: Mapping[str, BatchResult]
        try:
            if batch_id is None:
                batch_id = await self._endpoints.call(partial(self._adapter.find, name=name))
            if batch_id is None:
                raise RetryableError("the run was killed before its batch was submitted")
            self._store.set_id(name, batch_id)
            results = await self._wait_for_results(batch_id)
            digests = self._awaited_digests(pending, name)
        except Exception as error:
            digests = self._awaited_digests(pending, name)
            results = dict.fromkeys(digests, error)
        self._deliver(pending, name, digests, results)

    def _awaited_digests(self, pending: _PendingRequests, name: str) -> list[str]:
        """The requests of a batch that are awaited by now."""
        batches = ((digest, self._store.batch_of(digest)) for digest in pending.futures)
        return [digest for digest, batch in batches if batch and batch[0] == name]

    async def _wait_for_results(self, batch_id: str) -> Mapping[str, BatchResult]:
        """Poll until the batch is done, also through outages of the provider."""
        while True:
            try:
                poll = partial(self._adapter.results, batch_id=batch_id)
                results = await self._endpoints.call(poll)
            except RetryableError:
                results = None
            if results is not None:
                return results
            await asyncio.sleep(self._poll_seconds)

    def _deliver(
        self,
        pending: _PendingRequests,
        name: str,
        digests: Sequence[str],
        results: Mapping[str, BatchResult],
    ) -> None:
        """Resolve the awaited requests; later ones look the batch up again."""
        pending.tasks.pop(name, None)
        missing = RetryableError("the provider's batch has no answer to it")
        for digest in digests:
            future, result = pending.futures.pop(digest), results.get(digest, missing)
            if isinstance(result, Exception):
                self._store.remove(digest)
                future.set_exception(result)
            else:
                future.set_result(result)


async def find_batch(
    batches: AsyncIterable[Batch], is_wanted: Callable[[Batch], bool]
) -> Batch | None:
    """The first wanted batch among those of a key, newest first; None: there is none of late."""
    number = 0
    async for batch in batches:
        if is_wanted(batch):
            return batch
        number += 1
        if number >= _MAX_SEARCHED:
            return None
    return None


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
