"""The calls that make one score: one of most scorers, two of VIEScore as the paper uses it.

Each call is given to whoever keeps the books (a journal, the rewards of a training), so that it is
stored by itself: after a kill only the call without an answer is made again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

from schemas.trajectories import ScoreCalls
from warehouse import EncodedImage

from ..roles import (
    Backend,
    BackendError,
    QualityGrades,
    QualityScorer,
    Score,
    Scorer,
    SemanticsGrades,
    SemanticsScorer,
    UnusableAnswerError,
    uses_batch_api,
)

T = TypeVar("T")


@dataclass(frozen=True)
class ScoredAttempt:
    """What is scored: the images before (None: text-to-image) and after, and the step's goal."""

    before: EncodedImage | None
    after: EncodedImage
    instruction: str


@dataclass(frozen=True)
class ScoreCall:
    """A call that `send` makes. `instruction` None: it does not see the goal."""

    backend: Backend
    images: tuple[EncodedImage | None, ...]
    instruction: str | None
    answer_type: type
    send: Callable[[], Awaitable[Any]]


MakeCall = Callable[[ScoreCall], Awaitable[Any]]


@dataclass(frozen=True)
class TwoCallScorer:
    """Semantics and quality in a call each; implements `Scorer` of `inference/roles.py`.

    Semantics sees both images and the goal, quality the image after alone (paper, section 3.2).
    """

    score_calls: ClassVar[ScoreCalls] = "two"

    backend: str
    model: str
    semantics: SemanticsScorer
    quality: QualityScorer

    @property
    def uses_batch_api(self) -> bool:
        return uses_batch_api(self.semantics)

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        attempt = ScoredAttempt(before, after, instruction)
        return await score_by_calls(self, attempt, lambda call: call.send())


def callees(scorer: Scorer) -> tuple[Backend, ...]:
    """Who is called for one score: the scorer, or the parts of one that makes two calls."""
    return (scorer.semantics, scorer.quality) if isinstance(scorer, TwoCallScorer) else (scorer,)


def score_calls(scorer: Scorer) -> ScoreCalls | None:
    """Whether a remote scorer makes one or two calls for a score; None: any other scorer."""
    return getattr(scorer, "score_calls", None)


async def score_by_calls(scorer: Scorer, attempt: ScoredAttempt, make: MakeCall) -> Score:
    """The score of a scorer that is no ensemble, by one `make` for each of its calls.

    Raises:
        UnusableAnswerError: of a call; the other one is made, and its answer is stored.
    """
    before, after, goal = attempt.before, attempt.after, attempt.instruction
    if not isinstance(scorer, TwoCallScorer):
        send = partial(scorer.score, before, after, goal)
        score: Score = await make(ScoreCall(scorer, (before, after), goal, Score, send))
        return score
    semantics, quality = scorer.semantics, scorer.quality
    send_both = partial(semantics.score_semantics, before, after, goal)
    send_quality = partial(quality.score_quality, after)
    answers = await gather_to_end(
        [
            make(ScoreCall(semantics, (before, after), goal, SemanticsGrades, send_both)),
            make(ScoreCall(quality, (after,), None, QualityGrades, send_quality)),
        ]
    )
    grades: dict[str, float] = {}
    for answer in answers:
        if isinstance(answer, UnusableAnswerError):
            raise answer
        grades |= vars(answer)
    return Score(**grades)


async def gather_to_end(calls: Iterable[Awaitable[T]]) -> list[T | UnusableAnswerError]:
    """The answers of calls that are made at once, each to its end, so that all are stored.

    Raises the first error that is no `UnusableAnswerError`; a `BackendError` before others.
    """
    answers = await asyncio.gather(*calls, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    if failures := [error for error in errors if not isinstance(error, UnusableAnswerError)]:
        raise min(failures, key=lambda failure: not isinstance(failure, BackendError))
    return cast(list[T | UnusableAnswerError], answers)
