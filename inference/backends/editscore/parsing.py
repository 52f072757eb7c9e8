"""Answers of EditScore as grades."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from pydantic import ConfigDict

from ...roles import UnusableAnswerError
from ..checkpoint.model import Completion
from ..providers.structured import AnswerFormatError, StructuredAnswer, parse_answer

_MAX_GRADE = 10


class Ratings(NamedTuple):
    """The two ratings of a prompt, as grades from 0 to 10."""

    first: float
    second: float


class _RatingAnswer(StructuredAnswer):
    model_config = ConfigDict(extra="ignore")

    reasoning: str = ""
    score: tuple[float, float]


def mean_ratings(prompt: str, completions: Sequence[Completion], score_range: float) -> Ratings:
    """The means over the valid answers.

    Args:
        prompt: its name, for the error.
        score_range: the highest rating.

    Raises:
        UnusableAnswerError: no answer is valid.
    """
    ratings, errors = [], []
    for completion in completions:
        try:
            ratings.append(_parse(completion, score_range))
        except AnswerFormatError as error:
            errors.append(error)
    if not ratings:
        raise UnusableAnswerError(
            f"none of {len(errors)} answers about {prompt} can be read; the first: {errors[0]}"
        )
    return Ratings(fmean(r.first for r in ratings), fmean(r.second for r in ratings))


def _parse(completion: Completion, score_range: float) -> Ratings:
    """Raises `AnswerFormatError`."""
    if not completion.is_complete:  # repaired JSON would end with a truncated number
        raise AnswerFormatError(f"it was cut off after {completion.output_tokens} tokens")
    score = parse_answer(completion.text, _RatingAnswer).score
    if not all(0 <= rating <= score_range for rating in score):  # also false for NaN
        raise AnswerFormatError(f"score: {list(score)} is not within 0 and {score_range:g}")
    return Ratings(*(rating * _MAX_GRADE / score_range for rating in score))
