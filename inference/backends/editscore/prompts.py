"""The two prompts of EditScore, from a folder or our own, and their answers as grades."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pydantic import ConfigDict

from ...agent_prompts.templates import IMAGE, escape_tags, render, version_of
from ...roles import BackendError, UnusableAnswerError
from ..providers.structured import (
    AnswerFormatError,
    CompletionResult,
    StructuredAnswer,
    parse_answer,
)
from .loading import EditScoreSettings

SEMANTICS, QUALITY = "semantics", "quality"
_OWN_PROMPTS = {SEMANTICS: "editscore-semantics", QUALITY: "editscore-quality"}
_GOAL = "<instruction>"
_MAX_GRADE = 10


@dataclass(frozen=True)
class PromptTexts:
    """Both prompts. `custom`: a folder's texts by name; empty: our own.

    `max_rating` is the highest rating, as text.
    """

    max_rating: str
    custom: dict[str, str]

    @property
    def origin(self) -> str:
        """Whose prompts they are, for people."""
        return "its authors', as given" if self.custom else "ours, which it was not trained on"

    @property
    def versions(self) -> list[str]:
        """What the answers depend on, for the model's identity."""
        if self.custom:
            return [self.custom[SEMANTICS], self.custom[QUALITY]]
        return [self.max_rating, *(version_of(name) for name in _OWN_PROMPTS.values())]

    def semantics(self, instruction: str) -> str:
        """The prompt about the images before and after; `instruction`: the step's goal."""
        goal = escape_tags(instruction)
        if self.custom:
            return IMAGE * 2 + self.custom[SEMANTICS].replace(_GOAL, goal)
        return render(_OWN_PROMPTS[SEMANTICS], instruction=goal, best=self.max_rating).text

    def quality(self) -> str:
        """The prompt about the image after."""
        if self.custom:
            return IMAGE + self.custom[QUALITY]
        return render(_OWN_PROMPTS[QUALITY], best=self.max_rating).text


def prompt_texts(settings: EditScoreSettings) -> PromptTexts:
    """The prompts that the settings name.

    Raises:
        BackendError: a file is missing from their folder, or has no place for the goal.
    """
    custom = dict(_read_texts(settings.prompts)) if settings.prompts else {}
    if custom and _GOAL not in custom[SEMANTICS]:
        raise BackendError(
            f"{settings.prompts}/{SEMANTICS}.txt: put {_GOAL} where the goal of the step belongs"
        )
    return PromptTexts(f"{settings.score_range:g}", custom)


def _read_texts(folder: Path) -> Iterator[tuple[str, str]]:
    for name in (SEMANTICS, QUALITY):
        path = folder.expanduser() / f"{name}.txt"
        try:
            yield name, escape_tags(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BackendError(
                f"{path} cannot be read: put the {name} prompt there, or set `editscore.prompts` "
                "to null"
            ) from error


class _RatingAnswer(StructuredAnswer):
    model_config = ConfigDict(extra="ignore")

    reasoning: str = ""
    score: tuple[float, float]


def mean_ratings(
    prompt: str, completions: Sequence[CompletionResult], score_range: float
) -> tuple[float, float]:
    """The two ratings of a prompt as grades from 0 to 10: the means over the valid answers.

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
    return fmean(first for first, _ in ratings), fmean(second for _, second in ratings)


def _parse(completion: CompletionResult, score_range: float) -> tuple[float, float]:
    """Raises `AnswerFormatError`."""
    score = parse_answer(completion, _RatingAnswer).score
    if not all(0 <= rating <= score_range for rating in score):  # also false for NaN
        raise AnswerFormatError(f"score: {list(score)} is not within 0 and {score_range:g}")
    first, second = (rating * _MAX_GRADE / score_range for rating in score)
    return first, second
