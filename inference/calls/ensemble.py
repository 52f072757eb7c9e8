"""Several scorers as one: each scores every attempt, and the score is their weighted mean.

A member whose answer is unusable (`UnusableAnswerError`) is left out of that attempt's mean. Any
other error of a member is the attempt's error, raised once the other members are done: each member
is called and journaled separately, so that their answers are stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field, PositiveFloat

from schemas.yaml_config import ConfigModel
from warehouse import EncodedImage

from ..roles import Score, Scorer, UnusableAnswerError, qualified_name, uses_batch_api
from .hashing import stable_hash
from .retry import summarize_error
from .scoring import MakeCall, ScoredAttempt, gather_to_end, score_by_calls


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
