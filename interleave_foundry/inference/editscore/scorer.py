"""The scorer that EditScore plays."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from PIL import Image

from ...warehouse import Picture
from ..batching import Batcher
from ..checkpoint.agent import Agent, Answer
from ..checkpoint.encoding import Question
from ..checkpoint.sampling import Sampling
from ..roles import Score
from ..seeds import stable_hash
from ..usage import report_usage
from ..weights import state_of
from .loading import load
from .reading import mean_marks
from .settings import EditScoreSettings
from .wording import wording

_REVISION = 1  # raise when the same answers come to other grades
# What answers and grades depend on beside weights and words.
_MANNER = {
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
    """Grades attempts; see `Scorer` in `inference/roles.py`, and the room's first lines.

    The weights are loaded for the first attempt.

    Raises:
        BackendError: the settings name a wording that is not there.
    """

    backend = "editscore"

    def __init__(self, settings: EditScoreSettings) -> None:
        self._settings, self._wording = settings, wording(settings)
        self._batcher: Batcher[Question, Answer] = Batcher(
            self._work, settings.batch, settings.gather_seconds
        )

    @cached_property
    def model(self) -> str:
        """`name@revision-hash`, which changes whenever grades may."""
        settings = self._settings
        state = state_of(settings.model, settings.revision)
        name = Path(settings.model).name
        if settings.adapter:
            state = state_of(settings.adapter, settings.adapter_revision)
            name = Path(settings.adapter).name
        return f"{name}@{state[:12]}-{stable_hash(self._facts)[:8]}"

    async def score(self, before: Picture | None, after: Picture, instruction: str) -> Score:
        pictures = await asyncio.to_thread(_alike, before, after)
        semantics, quality = await asyncio.gather(
            self._asked(self._wording.semantics(instruction), pictures),
            self._asked(self._wording.quality(), pictures[1:]),
        )
        best = self._settings.score_range
        return Score(
            *mean_marks("semantics", semantics, best), *mean_marks("quality", quality, best)
        )

    async def _asked(self, text: str, pictures: tuple[Picture, ...]) -> list[Answer]:
        """All samples of one question's answer."""
        settings = self._settings
        seeds = range(settings.seed, settings.seed + settings.samples)
        questions = [Question(text, pictures, settings.max_new_tokens, seed) for seed in seeds]
        answers = await asyncio.gather(*map(self._batcher.ask, questions))
        report_usage(
            input_tokens=sum(answer.input_tokens for answer in answers),
            output_tokens=sum(answer.output_tokens for answer in answers),
            cost_usd=0.0,
        )
        return answers

    @property
    def _facts(self) -> list[object]:
        settings = self._settings
        return [
            _REVISION,
            settings.model,
            state_of(settings.model, settings.revision),
            settings.adapter and state_of(settings.adapter, settings.adapter_revision),
            settings.model_dump(include=_MANNER),
            self._wording.facts,
        ]

    @cached_property
    def _agent(self) -> Agent:
        settings = self._settings
        sampling = Sampling(settings.temperature, settings.top_p, settings.top_k)
        return Agent(load(settings, self.model), settings, sampling)

    def _work(
        self, questions: Sequence[Question], given_up: Callable[[], bool]
    ) -> Sequence[Answer | Exception]:
        return self._agent.attempt(questions, given_up)


def _alike(before: Picture | None, after: Picture) -> tuple[Picture, Picture]:
    """Both pictures, the later one as large as the earlier one, as EditScore's authors send them.

    Where there was none before, it is a white canvas.
    """
    size = after.image.size
    if before is None:
        return Picture.white(size), after
    if before.image.size == size:
        return before, after
    return before, Picture.of(after.image.resize(before.image.size, Image.Resampling.BICUBIC))
