"""The scorer of the `editscore` backend."""

import asyncio
from functools import cached_property
from pathlib import Path

from PIL import Image

from warehouse import EncodedImage

from ...calls.hashing import stable_hash
from ...roles import Score
from ..checkpoint.decoding import Sampling
from ..checkpoint.encoding import AgentQuery
from ..checkpoint.model import BatchedModel
from ..model_files import weights_revision
from ..providers.structured import CompletionResult
from .loading import EditScoreSettings, load
from .prompts import mean_ratings, prompt_texts

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
