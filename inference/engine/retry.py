"""Making one call of a model: a slot of its pool, a timeout per try, retries with jitter."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from schemas import FoundryError
from schemas.trajectories import Role
from warehouse import EncodedImage

from ..roles import BackendError, Plan, RetryableError, Score, UnusableAnswerError, Verdict
from ..settings import Limits
from ..vocabulary_protocol import Proposals
from .pausable_timeout import PausableTimeout, Slot
from .usage import Usage, metered

T = TypeVar("T")

ANSWERS: dict[Role, type] = {
    "planner": Plan,
    "generator": EncodedImage,
    "critic": Verdict,
    "scorer": Score,
    "expander": Proposals,
}
_TRANSIENT = (RetryableError, TimeoutError, ConnectionError)
_LONGEST_WAIT_SECONDS = 60
_LONGEST_REASON = 300


class CallFailedError(Exception):
    """A call that got no answer; a rerun makes it again. The message says whose and why."""


@dataclass
class CallOutcome(Generic[T]):
    """What a call came to: an answer or a final error, and what its tries took.

    `seconds` is the time spent with the model over all tries, without any waiting for a slot.
    """

    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    tries: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    answer: T | None = None
    error: Exception | None = None


class RetryingCaller:
    """Bounded concurrency: one pool for the generator, one for planner, critic and scorer."""

    def __init__(self, limits: Limits) -> None:
        self._timeout = limits.call_timeout_seconds
        self._generator = asyncio.Semaphore(limits.generator)
        self._agents = asyncio.Semaphore(limits.agents)
        self._retrying = AsyncRetrying(
            retry=retry_if_exception_type(_TRANSIENT),
            stop=stop_after_attempt(limits.tries),
            wait=wait_random_exponential(limits.backoff_seconds, _LONGEST_WAIT_SECONDS),
            reraise=True,
        )

    async def call(
        self, role: Role, ask: Callable[[], Awaitable[T]], patient: bool = False
    ) -> CallOutcome[T]:
        """Try until there is an answer, an error that will not pass, or no try left.

        Args:
            patient: a call that waits in a batch takes no slot.

        Raises:
            BackendError: neither this call nor any other can succeed.
        """
        effort: CallOutcome[T] = CallOutcome()
        retrying = self._retrying.copy()  # tenacity keeps a call's state on the object
        with metered(effort.usage):
            try:
                effort.answer = await retrying(self._try, role, ask, effort, patient)
            except BackendError:
                raise
            except Exception as error:  # whatever a backend raises is this one call's failure
                effort.error = error
        return effort

    async def _try(
        self, role: Role, ask: Callable[[], Awaitable[T]], effort: CallOutcome[T], patient: bool
    ) -> T:
        slot = Slot(None if patient else self._pool(role))
        async with slot:
            effort.tries += 1
            clock = PausableTimeout(self._timeout, slot)
            try:
                async with clock.running():
                    answer = await ask()
            finally:
                effort.seconds += clock.seconds
            return _checked(role, answer)

    def has_room(self, role: Role) -> bool:
        """Whether a call could begin at once."""
        return not self._pool(role).locked()

    def _pool(self, role: Role) -> asyncio.Semaphore:
        return self._generator if role == "generator" else self._agents


def summarize_error(error: BaseException) -> str:
    """An error as a table can hold it."""
    text = " ".join(str(error).split())[:_LONGEST_REASON]
    if isinstance(error, UnusableAnswerError | CallFailedError | FoundryError) and text:
        return text  # messages that were written to be read
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _checked(role: Role, answer: T) -> T:
    if not isinstance(answer, ANSWERS[role]):
        raise TypeError(f"answered with {type(answer).__name__}, not {ANSWERS[role].__name__}")
    if isinstance(answer, Score):
        _check_grades(answer)
    return answer


def _check_grades(score: Score) -> None:
    grades: dict[str, Any] = vars(score)
    for name, grade in grades.items():
        if not 0 <= grade <= 10:  # also true of NaN
            raise UnusableAnswerError(f"{name} is {grade}, not a grade from 0 to 10")
