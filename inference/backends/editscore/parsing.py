"""From what EditScore wrote to grades."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from pydantic import ConfigDict

from ...roles import UnusableAnswerError
from ..checkpoint.model import Completion
from ..providers.structured import AnswerFormatError, read
from ..providers.structured import StructuredAnswer as Written

_BEST_GRADE = 10


class Ratings(NamedTuple):
    """The two marks of a question, as grades from 0 to 10."""

    first: float
    second: float


class _Written(Written):
    model_config = ConfigDict(extra="ignore")

    reasoning: str = ""
    score: tuple[float, float]


def mean_ratings(question: str, answers: Sequence[Completion], score_range: float) -> Ratings:
    """The means over those answers that can be read.

    Raises:
        BadAnswer: none can.
    """
    marks, faults = [], []
    for answer in answers:
        try:
            marks.append(_marks(answer, score_range))
        except AnswerFormatError as fault:
            faults.append(fault)
    if not marks:
        raise UnusableAnswerError(
            f"none of {len(faults)} answers about {question} can be read; the first: {faults[0]}"
        )
    return Ratings(fmean(mark.first for mark in marks), fmean(mark.second for mark in marks))


def _marks(answer: Completion, score_range: float) -> Ratings:
    """Raises `AnswerFormatError`."""
    if not answer.whole:  # repaired, its last mark would be one with digits missing
        raise AnswerFormatError(f"it was cut off after {answer.output_tokens} tokens")
    score = read(answer.text, _Written).score
    if not all(0 <= mark <= score_range for mark in score):  # NaN is not, either
        raise AnswerFormatError(f"score: {list(score)} is not within 0 and {score_range:g}")
    return Ratings(*(mark * _BEST_GRADE / score_range for mark in score))
