"""Makes one call of a model: a slot of its pool, a timeout per try, retries with jitter.

A backend reports about the call that it is in: tokens and cost, and waiting. While a try waits for
something other than the model, its timeout is paused and its slot is free for another call.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Generic, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from schemas import FoundryError
from schemas.trajectories import Role

from ..roles import BackendError, RetryableError, UnusableAnswerError
from ..settings import Limits

T = TypeVar("T")

_TRANSIENT = (RetryableError, TimeoutError, ConnectionError)
_MAX_WAIT_SECONDS = 60
_MAX_ERROR_CHARACTERS = 300


@dataclass
class CallUsage:
    """Totals of one call, failed tries included; None: the backend reported nothing.

    `estimated_usd`: part of `cost_usd`, of requests without an answer that may be billed.
    `before_request`: awaited with the likely cost of a request that is about to be sent, and
    whether a later run resumes it.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    estimated_usd: float | None = None
    retries: int = 0  # requests that the backend itself repeated
    before_request: Callable[[float, bool], Awaitable[None]] | None = None


_usage: ContextVar[CallUsage | None] = ContextVar("usage", default=None)


def report_usage(**amounts: float | None) -> None:
    """Add to fields of the current call's `CallUsage`; outside `collect_usage` it does nothing."""
    usage = _usage.get()
    for name, amount in amounts.items():
        if usage and amount is not None:
            setattr(usage, name, (getattr(usage, name) or 0) + amount)


async def announce_request(likely_usd: float, resumable: bool = False) -> None:
    """A priced request is about to be sent: after a kill, the ledger has its likely cost.

    `resumable`: the same call, made again, gets the answer to this request and pays no other.
    """
    usage = _usage.get()
    if usage and usage.before_request:
        await usage.before_request(likely_usd, resumable)


@contextmanager
def collect_usage(usage: CallUsage) -> Iterator[None]:
    token = _usage.set(usage)
    try:
        yield
    finally:
        _usage.reset(token)


class PausableTimeout:
    """Holds one of `slots`, and cancels a try that is with the model for more than `limit` seconds.

    `seconds`: the time with the model so far, without pauses.
    """

    def __init__(self, limit: float, slots: asyncio.Semaphore) -> None:
        self.seconds = 0.0
        self._limit, self._slots = limit, slots
        self._holds_slot = False
        self._resumed_at: float | None = None  # None: paused
        self._timeout = asyncio.timeout(None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Around the try; TimeoutError if it took longer than the limit and was cancelled."""
        await self._take_slot()
        token = _current.set(self)
        try:
            async with self._timeout:
                self._resume()
                yield
        except TimeoutError as error:
            if self._timeout.expired():
                raise TimeoutError(f"no answer within {self._limit:g} s") from error
            raise
        finally:
            self._add_elapsed()
            _current.reset(token)
            self._free_slot()

    def pause(self) -> None:
        """Until it is resumed: the try is not with the model."""
        self._add_elapsed()
        self._timeout.reschedule(None)
        self._free_slot()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        self.pause()
        try:
            yield
            await self._take_slot()
        finally:
            self._resume()

    async def _take_slot(self) -> None:
        await self._slots.acquire()
        self._holds_slot = True

    def _free_slot(self) -> None:
        if self._holds_slot:
            self._slots.release()
            self._holds_slot = False

    def _resume(self) -> None:
        self._resumed_at = perf_counter()
        remaining = self._limit - self.seconds
        self._timeout.reschedule(asyncio.get_running_loop().time() + remaining)

    def _add_elapsed(self) -> None:
        if self._resumed_at is not None:
            self.seconds += perf_counter() - self._resumed_at
            self._resumed_at = None


_current: ContextVar[PausableTimeout | None] = ContextVar("timeout", default=None)


def pause_timeout() -> AbstractAsyncContextManager[None]:
    """Pauses the current try's timeout while a backend waits for something but the model."""
    timeout = _current.get()
    return timeout.paused() if timeout else nullcontext()  # None: outside `RetryingCaller`


def end_request() -> None:
    """The model has answered: reading the answer takes no slot, until there is another request."""
    if timeout := _current.get():
        timeout.pause()


class CallFailedError(Exception):
    """A call without an answer, which a rerun makes again. The message has backend and reason."""


@dataclass
class CallOutcome(CallUsage, Generic[T]):
    """An answer or a final error, and what the tries took.

    `seconds` is the time with the model over all tries, without waiting for a slot.
    """

    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    tries: int = 0
    seconds: float = 0.0
    answer: T | None = None
    error: Exception | None = None


class RetryingCaller:
    """Bounds concurrency: one pool of slots for the generator, one for all other roles."""

    def __init__(self, limits: Limits) -> None:
        self._timeout_seconds = limits.call_timeout_seconds
        self._generator_slots = asyncio.Semaphore(limits.generator)
        self._agent_slots = asyncio.Semaphore(limits.agents)
        self._retrying = AsyncRetrying(
            retry=retry_if_exception_type(_TRANSIENT),
            stop=stop_after_attempt(limits.tries),
            wait=wait_random_exponential(limits.backoff_seconds, _MAX_WAIT_SECONDS),
            reraise=True,
        )

    async def call(
        self,
        role: Role,
        answer_type: type,
        send: Callable[[], Awaitable[T]],
        unlimited: bool = False,
        outcome: CallOutcome[T] | None = None,
    ) -> CallOutcome[T]:
        """Try until there is an answer, an error that is not transient, or no try left.

        Args:
            answer_type: that of `T`; another answer is an error.
            unlimited: it takes no slot, for a call that waits in a batch.
            outcome: to be filled in; when a call is cancelled that may be billed, it has an error.

        Raises:
            BackendError: no call of this backend can succeed.
        """
        outcome = outcome or CallOutcome()
        retrying = self._retrying.copy()  # tenacity stores a call's state on the object
        with collect_usage(outcome):
            try:
                outcome.answer = await retrying(
                    self._try, role, answer_type, send, outcome, unlimited
                )
            except asyncio.CancelledError:
                if outcome.cost_usd:  # the provider may bill what was sent
                    outcome.error = CallFailedError("cancelled before its answer arrived")
                raise
            except BackendError:
                raise
            except Exception as error:  # whatever a backend raises fails this call alone
                outcome.error = error
        return outcome

    async def _try(
        self,
        role: Role,
        answer_type: type,
        send: Callable[[], Awaitable[T]],
        outcome: CallOutcome[T],
        unlimited: bool,
    ) -> T:
        slots = self._generator_slots if role == "generator" else self._agent_slots
        if unlimited:
            slots = asyncio.Semaphore(sys.maxsize)  # its batch's task takes slots of it as well
        timeout = PausableTimeout(self._timeout_seconds, slots)
        try:
            async with timeout.running():
                outcome.tries += 1
                answer = await send()
        finally:
            outcome.seconds += timeout.seconds
        return _check(role, answer_type, answer)

    def generator_is_idle(self) -> bool:
        """Whether a generator call could begin at once without delaying another one."""
        return not self._generator_slots.locked()


def summarize_error(error: BaseException) -> str:
    """An error in one line of limited length, as tables store it."""
    text = " ".join(str(error).split())[:_MAX_ERROR_CHARACTERS]
    if isinstance(error, UnusableAnswerError | CallFailedError | FoundryError) and text:
        return text  # messages written for users
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _check(role: Role, answer_type: type, answer: T) -> T:
    if not isinstance(answer, answer_type):
        raise TypeError(f"answered with {type(answer).__name__}, not {answer_type.__name__}")
    for name, grade in vars(answer).items() if role == "scorer" else ():
        if not 0 <= grade <= 10:  # also true of NaN
            raise UnusableAnswerError(f"{name} is {grade}, not a grade from 0 to 10")
    return answer
