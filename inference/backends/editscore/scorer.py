"""The scorer that EditScore plays."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from PIL import Image

from warehouse import EncodedImage

from ...engine.batching import Batcher
from ...engine.hashing import stable_hash
from ...engine.usage import report_usage
from ...roles import Score
from ..checkpoint.encoding import AgentQuery
from ..checkpoint.model import CheckpointModel, Completion
from ..checkpoint.sampling import Sampling
from ..model_files import weights_revision
from .loading import load
from .parsing import mean_ratings
from .prompts import prompt_texts
from .settings import EditScoreSettings

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
        self._settings, self._wording = settings, prompt_texts(settings)
        self._batcher: Batcher[AgentQuery, Completion] = Batcher(
            self._work, settings.batch, settings.gather_seconds
        )

    @cached_property
    def model(self) -> str:
        """`name@revision-hash`, which changes whenever grades may."""
        settings = self._settings
        state = weights_revision(settings.model, settings.revision)
        name = Path(settings.model).name
        if settings.adapter:
            state = weights_revision(settings.adapter, settings.adapter_revision)
            name = Path(settings.adapter).name
        return f"{name}@{state[:12]}-{stable_hash(self._facts)[:8]}"

    async def score(
        self, before: EncodedImage | None, after: EncodedImage, instruction: str
    ) -> Score:
        pictures = await asyncio.to_thread(_alike, before, after)
        semantics, quality = await asyncio.gather(
            self._asked(self._wording.semantics(instruction), pictures),
            self._asked(self._wording.quality(), pictures[1:]),
        )
        best = self._settings.score_range
        return Score(
            *mean_ratings("semantics", semantics, best), *mean_ratings("quality", quality, best)
        )

    async def _asked(self, text: str, pictures: tuple[EncodedImage, ...]) -> list[Completion]:
        """All samples of one question's answer."""
        settings = self._settings
        seeds = range(settings.seed, settings.seed + settings.samples)
        questions = [AgentQuery(text, pictures, settings.max_new_tokens, seed) for seed in seeds]
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
            weights_revision(settings.model, settings.revision),
            settings.adapter and weights_revision(settings.adapter, settings.adapter_revision),
            settings.model_dump(include=_MANNER),
            self._wording.facts,
        ]

    @cached_property
    def _agent(self) -> CheckpointModel:
        settings = self._settings
        sampling = Sampling(settings.temperature, settings.top_p, settings.top_k)
        return CheckpointModel(load(settings, self.model), settings, sampling)

    def _work(
        self, questions: Sequence[AgentQuery], given_up: Callable[[], bool]
    ) -> Sequence[Completion | Exception]:
        return self._agent.attempt(questions, given_up)


def _alike(before: EncodedImage | None, after: EncodedImage) -> tuple[EncodedImage, EncodedImage]:
    """Both pictures, the later one as large as the earlier one, as EditScore's authors send them.

    Where there was none before, it is a white canvas.
    """
    size = after.image.size
    if before is None:
        return EncodedImage.white(size), after
    if before.image.size == size:
        return before, after
    return before, EncodedImage.of(after.image.resize(before.image.size, Image.Resampling.BICUBIC))
