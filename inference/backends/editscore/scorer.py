"""The scorer of the `editscore` backend: its two prompts, and their answers as grades."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from PIL import Image
from pydantic import ConfigDict

from warehouse import EncodedImage

from ...agent_prompts.templates import IMAGE, escape_tags, render, version_of
from ...calls.hashing import stable_hash
from ...roles import BackendError, Score, UnusableAnswerError
from ..checkpoint.decoding import Sampling
from ..checkpoint.encoding import AgentQuery
from ..checkpoint.model import BatchedModel
from ..model_files import weights_revision
from ..providers.structured import (
    AnswerFormatError,
    CompletionResult,
    StructuredAnswer,
    parse_answer,
)
from .loading import EditScoreSettings, load

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


_REVISION = 1  # raise when the same answers give other grades
# Settings that grades depend on, besides weights and prompts.
_HASHED_SETTINGS = {
    "score_range",
    "samples",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "max_new_tokens",
    "dtype",
}


class EditScoreScorer:
    """Grades attempts; see `Scorer` in `inference/roles.py`, and this package's docstring.

    The weights are loaded for the first attempt.

    Raises:
        BackendError: the prompts that the settings name cannot be read.
    """

    backend = "editscore"

    def __init__(self, settings: EditScoreSettings) -> None:
        self._settings, self._prompts = settings, prompt_texts(settings)
        self._batched = BatchedModel(
            lambda: load(settings, self.model),
            settings.batch,
            settings.batch_tokens,
            settings.gather_seconds,
            Sampling(settings.temperature, settings.top_p, settings.top_k),
        )

    @cached_property
    def model(self) -> str:
        """`name@revision-hash`, which changes whenever grades may."""
        settings = self._settings
        model_revision = weights_revision(settings.model, settings.revision)
        adapter_revision = settings.adapter and weights_revision(
            settings.adapter, settings.adapter_revision
        )
        hashed = [
            _REVISION,
            settings.model,
            model_revision,
            adapter_revision,
            settings.model_dump(include=_HASHED_SETTINGS),
            self._prompts.versions,
        ]
        name = Path(settings.adapter or settings.model).name
        revision = adapter_revision or model_revision
        return f"{name}@{revision[:12]}-{stable_hash(hashed)[:8]}"

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        images = await asyncio.to_thread(_with_equal_sizes, before, after)
        semantics, quality = await asyncio.gather(
            self._sample(self._prompts.semantics(instruction), images),
            self._sample(self._prompts.quality(), images[1:]),
        )
        score_range = self._settings.score_range
        return Score(
            *mean_ratings("semantics", semantics, score_range),
            *mean_ratings("quality", quality, score_range),
        )

    async def _sample(self, text: str, images: tuple[EncodedImage, ...]) -> list[CompletionResult]:
        """All samples of the answer to one prompt."""
        settings = self._settings
        seeds = range(settings.seed, settings.seed + settings.samples)
        queries = [AgentQuery(text, images, settings.max_new_tokens, seed) for seed in seeds]
        return await asyncio.gather(*map(self._batched.complete, queries))


def _with_equal_sizes(
    before: EncodedImage | None, after: EncodedImage
) -> tuple[EncodedImage, EncodedImage]:
    """Both images, the later one in the size of the earlier one, as EditScore's authors do.

    A missing earlier image is a white canvas.
    """
    size = after.image.size
    if before is None:
        return EncodedImage.white(size), after
    if before.image.size == size:
        return before, after
    return before, EncodedImage.of(after.image.resize(before.image.size, Image.Resampling.BICUBIC))
