"""Several scorers as one: every attempt is graded by each, and the grades' weighted means count.

A member's refusal (`UnusableAnswerError`) leaves it out of one attempt's means. Whatever else goes wrong
with a member is the attempt's error, once the other members are done: each is asked by a call of
its own, so that what they answered is kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, PositiveFloat

from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage

from ..roles import BackendError, Score, Scorer, UnusableAnswerError, qualified_name, uses_batch_api
from .hashing import stable_hash
from .retry import summarize_error

MemberBackend = Literal["sketch", "editscore", "openai", "gemini"]
Ask = Callable[[Scorer], Awaitable[Score]]


class EnsembleSettings(ConfigModel):
    """The scorers of an ensemble."""

    members: dict[MemberBackend, PositiveFloat] = Field(
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
    """What a member said of an attempt: a score, or why there is none."""

    member: Member
    score: Score | None
    refusal: str | None = None


@dataclass(frozen=True)
class EnsembleScore:
    """An attempt's score, and the opinions that it is the mean of, where there are several."""

    answer: Score
    opinions: tuple[MemberScore, ...] = ()


class Ensemble:
    """Scorers with weights; see `Scorer` in `inference/roles.py`."""

    backend = "ensemble"

    def __init__(self, scorers: Mapping[str, Scorer], weights: Mapping[str, float]) -> None:
        self.members = tuple(Member(name, scorers[name], weights[name]) for name in sorted(weights))

    @property
    def model(self) -> str:
        """Members and weights, and a hash of the models behind them."""
        shares = "+".join(f"{member.name}*{member.weight:g}" for member in self.members)
        behind = [(qualified_name(member.scorer), member.weight) for member in self.members]
        return f"{shares}-{stable_hash(behind)[:8]}"

    @property
    def patient(self) -> bool:
        """Whether a member's calls wait in batches for hours."""
        return any(uses_batch_api(member.scorer) for member in self.members)

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        graded = await self.ask(lambda scorer: scorer.score(before, after, instruction))
        return graded.answer

    async def ask(self, ask: Ask) -> EnsembleScore:
        """Have every member asked, at the same time.

        Args:
            ask: how one scorer is asked.

        Raises:
            BadAnswer: no member has a score.
        """
        asked = [ask(member.scorer) for member in self.members]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        failures = [a for a in answers if isinstance(a, BaseException) and _is_failure(a)]
        if failures:
            raise min(failures, key=lambda failure: not isinstance(failure, BackendError))
        opinions = tuple(
            _opinion(member, answer) for member, answer in zip(self.members, answers, strict=True)
        )
        return EnsembleScore(_mean(opinions), opinions)


async def graded(scorer: Scorer, ask: Ask) -> EnsembleScore:
    """A scorer's word on an attempt; an ensemble's members are asked each by itself."""
    if isinstance(scorer, Ensemble):
        return await scorer.ask(ask)
    return EnsembleScore(await ask(scorer))


def _is_failure(error: BaseException) -> bool:
    return not isinstance(error, UnusableAnswerError)


def _opinion(member: Member, answer: Score | BaseException) -> MemberScore:
    if isinstance(answer, BaseException):
        return MemberScore(member, None, summarize_error(answer))
    return MemberScore(member, answer)


def _mean(opinions: Sequence[MemberScore]) -> Score:
    """The weighted mean of each of the four grades, over the members that gave them."""
    given = [(vars(o.score), o.member.weight) for o in opinions if o.score is not None]
    if not given:
        raise UnusableAnswerError("; ".join(str(opinion.refusal) for opinion in opinions))
    total = sum(weight for _, weight in given)
    return Score(
        **{
            grade: sum(grades[grade] * weight for grades, weight in given) / total
            for grade in given[0][0]
        }
    )
