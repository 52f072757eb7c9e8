"""Several scorers as one: every attempt is graded by each, and the grades' weighted means count.

A member's refusal (`BadAnswer`) leaves it out of one attempt's means. Whatever else goes wrong
with a member is the attempt's error, once the other members are done: each is asked by a call of
its own, so that what they answered is kept.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, PositiveFloat

from ..schemas.documents import Section
from ..warehouse import Picture
from .roles import BackendError, BadAnswer, Score, Scorer, is_patient, name_of
from .seeds import stable_hash
from .tries import one_line

MemberBackend = Literal["sketch", "editscore", "openai", "gemini"]
Ask = Callable[[Scorer], Awaitable[Score]]


class EnsembleSettings(Section):
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
class Opinion:
    """What a member said of an attempt: a score, or why there is none."""

    member: Member
    score: Score | None
    refusal: str | None = None


@dataclass(frozen=True)
class Graded:
    """An attempt's score, and the opinions that it is the mean of, where there are several."""

    answer: Score
    opinions: tuple[Opinion, ...] = ()


class Ensemble:
    """Scorers with weights; see `Scorer` in `inference/roles.py`."""

    backend = "ensemble"

    def __init__(self, scorers: Mapping[str, Scorer], weights: Mapping[str, float]) -> None:
        self.members = tuple(Member(name, scorers[name], weights[name]) for name in sorted(weights))

    @property
    def model(self) -> str:
        """Members and weights, and a hash of the models behind them."""
        shares = "+".join(f"{member.name}*{member.weight:g}" for member in self.members)
        behind = [(name_of(member.scorer), member.weight) for member in self.members]
        return f"{shares}-{stable_hash(behind)[:8]}"

    @property
    def patient(self) -> bool:
        """Whether a member's calls wait in batches for hours."""
        return any(is_patient(member.scorer) for member in self.members)

    async def score(self, before: Picture | None, after: Picture, instruction: str) -> Score:
        graded = await self.ask(lambda scorer: scorer.score(before, after, instruction))
        return graded.answer

    async def ask(self, ask: Ask) -> Graded:
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
        return Graded(_mean(opinions), opinions)


async def graded(scorer: Scorer, ask: Ask) -> Graded:
    """A scorer's word on an attempt; an ensemble's members are asked each by itself."""
    if isinstance(scorer, Ensemble):
        return await scorer.ask(ask)
    return Graded(await ask(scorer))


def _is_failure(error: BaseException) -> bool:
    return not isinstance(error, BadAnswer)


def _opinion(member: Member, answer: Score | BaseException) -> Opinion:
    if isinstance(answer, BaseException):
        return Opinion(member, None, one_line(answer))
    return Opinion(member, answer)


def _mean(opinions: Sequence[Opinion]) -> Score:
    """The weighted mean of each of the four grades, over the members that gave them."""
    given = [(vars(o.score), o.member.weight) for o in opinions if o.score is not None]
    if not given:
        raise BadAnswer("; ".join(str(opinion.refusal) for opinion in opinions))
    total = sum(weight for _, weight in given)
    return Score(
        **{
            grade: sum(grades[grade] * weight for grades, weight in given) / total
            for grade in given[0][0]
        }
    )
