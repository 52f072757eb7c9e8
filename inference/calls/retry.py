"""Makes one call of a model: a slot of its pool, a timeout per try, retries with jitter."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from schemas import FoundryError
from schemas.trajectories import Role

from ..roles import BackendError, RetryableError, UnusableAnswerError
from ..settings import Limits
from .call_context import CallUsage, PausableTimeout, collect_usage

T = TypeVar("T")

_TRANSIENT = (RetryableError, TimeoutError, ConnectionError)
_MAX_WAIT_SECONDS = 60
_MAX_ERROR_CHARACTERS = 300


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
