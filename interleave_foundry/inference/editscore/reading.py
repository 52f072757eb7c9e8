"""From what EditScore wrote to grades."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from pydantic import ConfigDict

from ..checkpoint.agent import Answer
from ..providers.structured import Answer as Written
from ..providers.structured import Malformed, read
from ..roles import BadAnswer

_BEST_GRADE = 10


class Marks(NamedTuple):
    """The two marks of a question, as grades from 0 to 10."""

    first: float
    second: float


class _Written(Written):
    model_config = ConfigDict(extra="ignore")

    reasoning: str = ""
    score: tuple[float, float]


def mean_marks(question: str, answers: Sequence[Answer], score_range: float) -> Marks:
    """The means over those answers that can be read.

    Raises:
        BadAnswer: none can.
    """
    marks, faults = [], []
    for answer in answers:
        try:
            marks.append(_marks(answer, score_range))
        except Malformed as fault:
            faults.append(fault)
    if not marks:
        raise BadAnswer(
            f"none of {len(faults)} answers about {question} can be read; the first: {faults[0]}"
        )
    return Marks(fmean(mark.first for mark in marks), fmean(mark.second for mark in marks))


def _marks(answer: Answer, score_range: float) -> Marks:
    """Raises `Malformed`."""
    if not answer.whole:  # repaired, its last mark would be one with digits missing
        raise Malformed(f"it was cut off after {answer.output_tokens} tokens")
    score = read(answer.text, _Written).score
    if not all(0 <= mark <= score_range for mark in score):  # NaN is not, either
        raise Malformed(f"score: {list(score)} is not within 0 and {score_range:g}")
    return Marks(*(mark * _BEST_GRADE / score_range for mark in score))
