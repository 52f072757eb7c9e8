"""The calls that make one score: one of most scorers, two of VIEScore as the paper uses it, and
those of every member of an ensemble, whose weighted mean counts.

Each call is given to whoever keeps the books (a journal, the rewards of a training), so that it is
stored by itself: after a kill only the call without an answer is made again. A member whose answer
is unusable is left out of that attempt's mean; any other error of a member is the attempt's error,
raised once the other members are done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

from pydantic import Field, PositiveFloat

from schemas.trajectories import ScoreCalls
from schemas.yaml_config import ConfigModel
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
    qualified_name,
    uses_batch_api,
)
from .hashing import stable_hash
from .retry import summarize_error

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


class EnsembleSettings(ConfigModel):
    """The scorers of an ensemble."""

    members: dict[str, PositiveFloat] = Field(
        min_length=2, description="Backend of a scorer -> its weight in the mean"
    )


@dataclass(frozen=True)
class Member:
    """A scorer of an ensemble; `name` is its backend's."""

    name: str
    scorer: Scorer
    weight: float


@dataclass(frozen=True)
class MemberScore:
    """A member's score of an attempt, or why there is none."""

    member: Member
    score: Score | None
    refusal: str | None = None


@dataclass(frozen=True)
class EnsembleScore:
    """An attempt's score, and for an ensemble the scores that it is the mean of."""

    score: Score
    members: tuple[MemberScore, ...] = ()


class Ensemble:
    """Scorers with weights; implements `Scorer` of `inference/roles.py`."""

    backend = "ensemble"

    def __init__(self, scorers: Mapping[str, Scorer], weights: Mapping[str, float]) -> None:
        self.members = tuple(Member(name, scorers[name], weights[name]) for name in sorted(weights))

    @property
    def model(self) -> str:
        """Members and weights, and a hash of their models."""
        weights = "+".join(f"{member.name}*{member.weight:g}" for member in self.members)
        models = [(qualified_name(member.scorer), member.weight) for member in self.members]
        return f"{weights}-{stable_hash(models)[:8]}"

    @property
    def uses_batch_api(self) -> bool:
        return any(uses_batch_api(member.scorer) for member in self.members)

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        attempt = ScoredAttempt(before, after, instruction)
        return (await score_with(self, attempt, lambda call: call.send())).score


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


async def score_with(scorer: Scorer, attempt: ScoredAttempt, make: MakeCall) -> EnsembleScore:
    """A score, by one `make` for each call; UnusableAnswerError if no member has one."""
    if not isinstance(scorer, Ensemble):
        return EnsembleScore(await score_by_calls(scorer, attempt, make))
    calls = [score_by_calls(member.scorer, attempt, make) for member in scorer.members]
    answers = await gather_to_end(calls)
    scores = tuple(
        MemberScore(member, None, summarize_error(answer))
        if isinstance(answer, UnusableAnswerError)
        else MemberScore(member, answer)
        for member, answer in zip(scorer.members, answers, strict=True)
    )
    return EnsembleScore(_mean(scores), scores)


def _mean(scores: Sequence[MemberScore]) -> Score:
    """The weighted mean of each of the four grades, over the members that gave them."""
    weighted = [(vars(each.score), each.member.weight) for each in scores if each.score is not None]
    if not weighted:
        raise UnusableAnswerError("; ".join(str(each.refusal) for each in scores))
    total = sum(weight for _, weight in weighted)
    return Score(
        **{
            grade: sum(grades[grade] * weight for grades, weight in weighted) / total
            for grade in weighted[0][0]
        }
    )
