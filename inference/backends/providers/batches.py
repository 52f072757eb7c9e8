"""Questions that may take a day, at about half the price: gathered, submitted together, picked up.

Which questions go into a batch is written down under a name before it is submitted, and the
provider's id of it after. A run that is started again asks the same questions, finds their batch
(by its name at the provider, had the id not been written yet) and waits for it: nothing is paid
twice. A batch belongs to the key that submitted it, so all go to the provider's first endpoint.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4
from weakref import WeakKeyDictionary

from ...engine.pausable_timeout import pause_timeout
from ...roles import RetryableError
from .chat import CompletionRequest, CompletionResult
from .endpoints import Endpoints
from .sqlite_file import SqliteFile

Client = TypeVar("Client")
Contra = TypeVar("Contra", contravariant=True)
Outcome = CompletionResult | Exception

_TABLES = (
    "CREATE TABLE IF NOT EXISTS batches (name TEXT PRIMARY KEY, id TEXT)",
    "CREATE TABLE IF NOT EXISTS questions (digest TEXT PRIMARY KEY, name TEXT NOT NULL)",
)


class BatchAdapter(Protocol[Contra]):
    """A provider's batch API. Its errors are those of `Adapter`."""

    batch_bytes: int

    async def submit(
        self, client: Contra, name: str, questions: Mapping[str, CompletionRequest]
    ) -> str:
        """Hand in questions of one model by digest; the provider's id of the batch."""

    async def find(self, client: Contra, name: str) -> str | None:
        """The id of the batch of that name, if the provider ever got it."""

    async def outcomes(self, client: Contra, batch: str) -> Mapping[str, Outcome] | None:
        """What became of the questions; None: it is not done yet."""


class BatchStore:
    """What was submitted, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self._books = SqliteFile(path, _TABLES)

    def intend(self, name: str, digests: Sequence[str]) -> None:
        with self._books.open() as books:
            books.execute("INSERT INTO batches VALUES (?, NULL)", (name,))
            rows = [(digest, name) for digest in digests]
            books.executemany("INSERT OR REPLACE INTO questions VALUES (?, ?)", rows)

    def submitted(self, name: str, batch: str) -> None:
        with self._books.open() as books:
            books.execute("UPDATE batches SET id = ? WHERE name = ?", (batch, name))

    def batch_of(self, digest: str) -> tuple[str, str | None] | None:
        """Name and id of the batch that a question is in."""
        with self._books.open() as books:
            found = books.execute(
                "SELECT name, id FROM batches JOIN questions USING (name) WHERE digest = ?",
                (digest,),
            ).fetchall()
        return found[0] if found else None

    def forget(self, digests: Sequence[str]) -> None:
        """Questions that got no answer; asked again, they go into another batch."""
        with self._books.open() as books:
            rows = [(digest,) for digest in digests]
            books.executemany("DELETE FROM questions WHERE digest = ?", rows)


@dataclass
class _PendingRequests:
    """What is going on in one event loop."""

    waiting: dict[str, asyncio.Future[CompletionResult]] = field(default_factory=dict)
    gathered: dict[str, CompletionRequest] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class BatchClient(Generic[Client]):
    """The batch mode of a provider.

    Args:
        gather_seconds: a batch is submitted when no question has come for so long.
        poll_seconds: between two looks at a batch.
    """

    def __init__(
        self,
        adapter: BatchAdapter[Client],
        endpoints: Endpoints[Client],
        book: BatchStore,
        gather_seconds: float,
        poll_seconds: float,
    ) -> None:
        self._adapter, self._endpoints, self._book = adapter, endpoints, book
        self._gather_seconds, self._poll_seconds = gather_seconds, poll_seconds
        self._desks: WeakKeyDictionary[asyncio.AbstractEventLoop, _PendingRequests] = (
            WeakKeyDictionary()
        )

    async def ask(self, question: CompletionRequest) -> CompletionResult:
        """The reply, whenever it comes; waiting for it is no time of the call's.

        Raises:
            TryLater: the batch failed, expired, or left this question out.
            BadAnswer, BackendError: as for any call.
        """
        desk = self._desks.setdefault(asyncio.get_running_loop(), _PendingRequests())
        digest = question.digest
        if digest not in desk.waiting:
            desk.waiting[digest] = asyncio.get_running_loop().create_future()
            self._take(desk, digest, question)
        async with pause_timeout():
            return await asyncio.shield(desk.waiting[digest])

    def _take(self, desk: _PendingRequests, digest: str, question: CompletionRequest) -> None:
        found = self._book.batch_of(digest)
        if found:
            self._watch(desk, *found)
            return
        desk.gathered[digest] = question
        if desk.timer:
            desk.timer.cancel()
        loop = asyncio.get_running_loop()
        desk.timer = loop.call_later(self._gather_seconds, self._submit_all, desk)

    def _submit_all(self, desk: _PendingRequests) -> None:
        gathered, desk.gathered = desk.gathered, {}
        for questions in _parcels(gathered, self._adapter.batch_bytes):
            name = f"interleave-{uuid4().hex}"
            self._book.intend(name, list(questions))
            self._start(desk, name, self._submitted(desk, name, questions))

    def _watch(self, desk: _PendingRequests, name: str, batch: str | None) -> None:
        if name not in desk.tasks:
            self._start(desk, name, self._found(desk, name, batch))

    def _start(self, desk: _PendingRequests, name: str, work: Any) -> None:
        desk.tasks[name] = asyncio.get_running_loop().create_task(work)

    async def _submitted(
        self, desk: _PendingRequests, name: str, questions: dict[str, CompletionRequest]
    ) -> None:
        try:
            submit = partial(self._adapter.submit, name=name, questions=questions)
            batch = await self._endpoints.call(submit)
            self._book.submitted(name, batch)
            outcomes = await self._outcomes(batch)
            self._hand_out(desk, name, list(questions), outcomes)
        except Exception as error:
            self._hand_out(desk, name, list(questions), dict.fromkeys(questions, error))

    async def _found(self, desk: _PendingRequests, name: str, batch: str | None) -> None:
        """A batch of an earlier run."""
        try:
            batch = batch or await self._endpoints.call(partial(self._adapter.find, name=name))
            if batch is None:
                raise RetryableError("the run was killed before its batch was submitted")
            self._book.submitted(name, batch)
            outcomes = await self._outcomes(batch)
            self._hand_out(desk, name, self._asked_again(desk, name), outcomes)
        except Exception as error:
            digests = self._asked_again(desk, name)
            self._hand_out(desk, name, digests, dict.fromkeys(digests, error))

    def _asked_again(self, desk: _PendingRequests, name: str) -> list[str]:
        """The questions of a batch that somebody waits for by now."""
        found = ((digest, self._book.batch_of(digest)) for digest in desk.waiting)
        return [digest for digest, batch in found if batch and batch[0] == name]

    async def _outcomes(self, batch: str) -> Mapping[str, Outcome]:
        """What became of a batch; a provider that is not there now is asked again."""
        while True:
            try:
                ask = partial(self._adapter.outcomes, batch=batch)
                outcomes = await self._endpoints.call(ask)
            except RetryableError:
                outcomes = None
            if outcomes is not None:
                return outcomes
            await asyncio.sleep(self._poll_seconds)

    def _hand_out(
        self,
        desk: _PendingRequests,
        name: str,
        digests: Sequence[str],
        outcomes: Mapping[str, Outcome],
    ) -> None:
        """Answer who waits; who comes later looks the batch up again."""
        desk.tasks.pop(name, None)
        missing = RetryableError("the provider's batch has no answer to it")
        for digest in digests:
            self._settle(desk, digest, outcomes.get(digest, missing))

    def _settle(self, desk: _PendingRequests, digest: str, outcome: Outcome) -> None:
        future = desk.waiting.pop(digest)
        if isinstance(outcome, Exception):
            self._book.forget([digest])
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _parcels(
    questions: dict[str, CompletionRequest], most_bytes: int
) -> list[dict[str, CompletionRequest]]:
    """Questions of one model, together no larger than a provider takes."""
    parcels: list[dict[str, CompletionRequest]] = []
    open_parcels: dict[str, tuple[dict[str, CompletionRequest], int]] = {}
    for digest, question in questions.items():
        size = question.bytes
        parcel, held = open_parcels.get(question.model, ({}, most_bytes))
        if held + size > most_bytes:
            parcel, held = {}, 0
            parcels.append(parcel)
        parcel[digest] = question
        open_parcels[question.model] = (parcel, held + size)
    return parcels
